// SPDX-License-Identifier: Apache-2.0
// Where the threads of a process have their stacks: what tells a live thread's stack from one that its thread
// has left behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/process/target.h"
#include "core/process/vma.h"

namespace whomap {

struct ThreadStack {
  pid_t thread = 0;
  std::uint64_t pointer = 0;  ///< the stack pointer
};

struct ThreadStacks {
  bool looked = false;            ///< false: nothing below means anything
  std::vector<ThreadStack> seen;  ///< ascending by pointer
  /// Threads whose stack pointer the kernel does not tell: they run at this moment, or access is refused.
  std::uint64_t unseen = 0;
  std::optional<std::uint64_t>
      limit;  ///< RLIMIT_STACK, the size glibc gives a thread; nullopt: unlimited or unknown

  /// Every live thread was seen, so a stack without one has none.
  [[nodiscard]] bool complete() const { return looked && unseen == 0; }
  /// The threads whose stack pointers lie in the range, of those that were seen.
  [[nodiscard]] std::span<const ThreadStack> threads_in(AddressRange range) const;
};

/// Above this many threads their stack pointers are not looked for: each is a file to open.
inline constexpr std::size_t thread_stack_limit = 4096;

/// Reads /proc/PID/task/TID/syscall of each thread, which stops nothing. A thread that runs is asked again a
/// few times. Needs the right to attach (man 5 proc_pid_syscall); else all threads are unseen.
ThreadStacks read_thread_stacks(const Target& target);

/// The stack pointer in the text of /proc/PID/task/TID/syscall; nullopt for "running". The last number but
/// one of "-1 SP PC" and of "NUMBER ARGUMENTS SP PC".
std::optional<std::uint64_t> parse_stack_pointer(std::string_view text);

}  // namespace whomap
