// SPDX-License-Identifier: Apache-2.0
// Evaluates the DWARF expressions that occur in call frame information (DWARF 5, sections 2.5 and
// 6.4.2). They come from the target's files: every operand is checked and the steps are limited.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <elfutils/libdw.h>

#include "core/unwind/register_file.h"
#include "core/unwind/stack_reader.h"

namespace whomap {

struct ExpressionInput {
  const RegisterFile& registers;
  const StackReader& stack;
  std::optional<std::uint64_t> cfa;  ///< nullopt while the CFA itself is being computed
};

enum class ExpressionFailure : std::uint8_t {
  none,
  unreadable,        ///< a read outside the stack copy, at `address`
  unknown_register,  ///< needs a register whose value is not known in this frame
  unsupported,       ///< an operation that has no meaning in call frame information
  malformed,         ///< stack underflow or overflow, bad branch, too many steps
};

struct ExpressionValue {
  ExpressionFailure failure = ExpressionFailure::none;
  std::uint64_t value = 0;
  bool is_location = true;    ///< `value` is the address where the result is stored
  std::uint64_t address = 0;  ///< of the failed read
};

ExpressionValue evaluate(std::span<const Dwarf_Op> operations, const ExpressionInput& input);

}  // namespace whomap
