// SPDX-License-Identifier: Apache-2.0
// Is it code, or data that happens to hold an instruction's bytes? Asked where no function boundary vouches
// for it.
#pragma once

#include <cstdint>

#include "core/plan/code_view.h"
#include "core/plan/function_code.h"
#include "core/plan/instruction.h"

namespace whomap {

/// Of the places in the two longest instructions' bytes before `address`, the share from which decoding
/// arrives at it: near 1 for an instruction, near 0 for bytes inside one.
double convergence(const CodeView& view, const InstructionSet& set, std::uint64_t address);

/// Do most decodings arrive at the instruction, and do those around it look like a program's: none that could
/// not be decoded, is privileged, or is never written by a compiler? `code` was decoded linearly over it.
bool looks_like_code(const CodeView& view, const InstructionSet& set, const FunctionCode& code,
                     std::uint64_t address);

}  // namespace whomap
