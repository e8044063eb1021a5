// SPDX-License-Identifier: Apache-2.0
// What call frame information says about one pc, in the form the unwinder runs on.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <elfutils/libdw.h>

#include "core/unwind/register_file.h"

namespace whomap {

struct Row {
  enum class Kind : std::uint8_t {
    missing,        ///< no call frame information covers the pc
    unusable,       ///< there is some, but it cannot be understood
    simple,         ///< CFA = register + offset; everything saved lies at CFA + a constant
    general,        ///< see GeneralRow number `general`
    outermost,      ///< the return address is undefined: nobody called this frame
    kernel_signal,  ///< the kernel's x86-64 signal return code, without CFI of its own
    stack_switch,   ///< Go's runtime runs this on another stack than its caller's
  };
  static constexpr std::int32_t not_saved = std::numeric_limits<std::int32_t>::min();

  Kind kind = Kind::missing;
  bool signal = false;  ///< the caller was interrupted, it did not call
  std::uint8_t cfa_register = 0;
  std::int32_t cfa_offset = 0;
  std::int32_t return_address = 0;      ///< where it is saved, relative to the CFA
  std::array<std::int32_t, 6> saved{};  ///< dwarf_register::callee_saved, relative to the CFA
  std::uint32_t general = 0;
};

/// One register's rule as libdw gives it.
struct RegisterRule {
  enum class Kind : std::uint8_t { undefined, same_value, expression };
  Kind kind = Kind::same_value;
  std::vector<Dwarf_Op> operations;
};

/// Rows with expressions or registers in unusual places. The operations refer to blocks of the
/// Dwarf_CFI that they come from, which must stay open.
struct GeneralRow {
  std::vector<Dwarf_Op> cfa;
  std::array<RegisterRule, dwarf_register::count> rules;
};

}  // namespace whomap
