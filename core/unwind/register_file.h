// SPDX-License-Identifier: Apache-2.0
// The registers of one frame by their DWARF numbers, with what is known of each.
#pragma once

#include <array>
#include <cstdint>

#include "core/capture/call_event.h"

namespace whomap {

/// DWARF register numbers of x86-64 (System V psABI, figure 3.36). 16 is the return address column.
namespace dwarf_register {
inline constexpr unsigned rax = 0, rdx = 1, rcx = 2, rbx = 3, rsi = 4, rdi = 5, rbp = 6, rsp = 7, r8 = 8,
                          r9 = 9, r10 = 10, r11 = 11, r12 = 12, r13 = 13, r14 = 14, r15 = 15, rip = 16,
                          count = 17;
/// The registers a function must give back unchanged (psABI 3.2.1), rsp aside, in the order of Row.
inline constexpr std::array<std::uint8_t, 6> callee_saved{rbx, rbp, r12, r13, r14, r15};
}  // namespace dwarf_register

/// A value that no rule restored stays unknown, so that nothing is ever computed from a stale one.
class RegisterFile {
 public:
  RegisterFile() = default;
  explicit RegisterFile(const Registers& from) {
    using namespace dwarf_register;
    set(rip, from.rip);
    set(rsp, from.rsp);
    set(rbp, from.rbp);
    set(rbx, from.rbx);
    set(r12, from.r12);
    set(r13, from.r13);
    set(r14, from.r14);
    set(r15, from.r15);
  }

  [[nodiscard]] bool known(unsigned number) const {
    return number < dwarf_register::count && (known_ >> number & 1U) != 0;
  }
  /// Meaningful only where known().
  [[nodiscard]] std::uint64_t operator[](unsigned number) const { return values_[number]; }
  void set(unsigned number, std::uint64_t value) {
    values_[number] = value;
    known_ |= 1U << number;
  }
  void forget(unsigned number) { known_ &= ~(1U << number); }
  /// What a return leaves: callee-saved registers keep their values, all others become unknown.
  void keep_callee_saved() {
    std::uint32_t kept = 0;
    for (const std::uint8_t number : dwarf_register::callee_saved) kept |= 1U << number;
    known_ &= kept;
  }

 private:
  std::array<std::uint64_t, dwarf_register::count> values_{};
  std::uint32_t known_ = 0;
};

}  // namespace whomap
