// SPDX-License-Identifier: Apache-2.0
// From registers and a copy of the stack to return addresses, by the target's own CFI.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/capture/call_event.h"
#include "core/elf/module_map.h"

namespace whomap {

struct UnwoundFrame {
  std::uint64_t pc = 0;      ///< a return address, except where `exact`
  int module = -1;           ///< index into the ModuleMap, -1 when no module holds pc
  std::uint64_t offset = 0;  ///< link-time address: pc - bias; pc itself when module is -1
  /// pc is an instruction that nothing returned to yet: where a signal arrived, or the kernel's signal
  /// return code, which a handler was made to return to without a call.
  bool exact = false;
  bool guessed = false;  ///< not proven by CFI: this frame or one below it was guessed
  bool operator==(const UnwoundFrame&) const = default;
};

struct UnwoundStack {
  std::vector<UnwoundFrame> frames;  ///< innermost first
  std::string truncated;          ///< why the stack ends before its outermost frame; empty when it does not
  std::uint64_t stack_bytes = 0;  ///< of the copy, from its start to the end of the outermost frame
  bool copy_ended = false;        ///< it is truncated because the copy is too short
};

class Unwinder {
 public:
  /// `modules` must outlive the unwinder; it may be updated between calls.
  explicit Unwinder(const ModuleMap& modules);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  /// The innermost frame's pc is registers.rip, taken as a return address (a syscall site's).
  UnwoundStack unwind(const Registers& registers, const StackCopy& stack);

  /// Executable memory that belongs to no module (JIT code). Once told, frames are followed through it
  /// by frame pointer, and a return address that is in no executable memory at all ends the stack.
  void set_other_code(std::vector<AddressRange> ranges);

  static constexpr std::size_t frame_limit = 4096;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace whomap
