// SPDX-License-Identifier: Apache-2.0
// One step from a frame's registers to its caller's, by a row of call frame information.
#pragma once

#include <cstdint>

#include "core/unwind/expression.h"
#include "core/unwind/register_file.h"
#include "core/unwind/row.h"
#include "core/unwind/stack_reader.h"

namespace whomap {

enum class StepOutcome : std::uint8_t {
  stepped,
  unreadable,         ///< needs memory outside the stack copy, at Step::address
  unknown_register,   ///< needs a register whose value is not known here
  unsupported,        ///< an expression that cannot be evaluated
  no_return_address,  ///< the return address is undefined, or 0: nobody called this frame
};

struct Step {
  StepOutcome outcome = StepOutcome::stepped;
  std::uint64_t address = 0;
};

/// On `stepped`, `registers` are the caller's: rsp is its stack pointer, rip the return address.
/// Otherwise they are unchanged.
Step step_simple(const Row& row, const StackReader& stack, RegisterFile& registers);
Step step_general(const GeneralRow& row, const StackReader& stack, RegisterFile& registers);
/// From the kernel's signal return code to the interrupted registers.
Step step_kernel_signal(const StackReader& stack, RegisterFile& registers);

}  // namespace whomap
