// SPDX-License-Identifier: Apache-2.0
// The caller of a frame that no call frame information describes: a guess, checked as far as it can be.
#pragma once

#include <vector>

#include "core/elf/module_map.h"
#include "core/process/vma.h"
#include "core/unwind/register_file.h"
#include "core/unwind/row_cache.h"
#include "core/unwind/stack_reader.h"

namespace whomap {

struct GuessInput {
  const ModuleMap& modules;
  const std::vector<AddressRange>& other_code;  ///< executable memory of no module, see Unwinder
  const StackReader& stack;
  PcKind pc;
};

/// Replaces `registers` by the caller's and returns true when there is a plausible one: a return
/// address at the stack pointer (a function without a frame of its own, only where it cannot have
/// called anything), or the frame pointer's pair. The address must follow a call instruction of a
/// module, or, by frame pointer only, lie in other executable memory. Registers that a frame may have
/// saved in unknown places become unknown.
bool guess_caller(const GuessInput& input, RegisterFile& registers);

}  // namespace whomap
