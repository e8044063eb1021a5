// SPDX-License-Identifier: Apache-2.0
// What one captured system call is, from the moment it returns until it has a stack id.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace whomap {

struct CallEvent {
  std::uint64_t enter_ns = 0;  ///< CLOCK_MONOTONIC; equal to exit_ns where only the return was seen
  std::uint64_t exit_ns = 0;
  pid_t tid = 0;
  std::int64_t number = 0;  ///< x86-64 system call number
  std::array<std::uint64_t, 6> arguments{};
  std::uint64_t result = 0;  ///< as in rax: -4095..-1 is an errno
  std::uint32_t site = 0;    ///< id of the plan's site
};

/// The registers the unwinder starts from, at the moment of the return.
struct Registers {
  std::uint64_t rip = 0, rsp = 0, rbp = 0, rbx = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0;
};

/// A copy of the stack from `address` (the thread's rsp) upwards. May end before the stack does.
struct StackCopy {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;

  /// The first frame pointer of the stack that the thread ran on before, 0 where there is none, and a copy of
  /// that stack, from other_stack_below under it (core/capture/frame_chain.h).
  std::uint64_t other_frame = 0;
  std::vector<std::byte> other_bytes = {};
};

/// The same without owning the bytes.
struct StackView {
  std::uint64_t address = 0;
  std::span<const std::byte> bytes;
  std::uint64_t other_frame = 0;
  std::span<const std::byte> other_bytes = {};
};

struct Capture {
  CallEvent event;
  Registers registers;
  StackCopy stack;
};

}  // namespace whomap
