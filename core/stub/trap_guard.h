// SPDX-License-Identifier: Apache-2.0
// Undoes what the kernel does to a thread that meets an int3 with SIGTRAP blocked: it sets the handler to the
// default for the whole process and takes SIGTRAP out of the thread's mask (kernel/signal.c,
// force_sig_info_to_task). glibc blocks all signals around mmap and munmap in posix_spawn, system, popen and
// at a thread's end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "core/stub/trace_stop.h"

namespace whomap {

/// Does a stopped thread block SIGTRAP? To be called on the thread that traces it. What cannot be read is no.
bool blocks_sigtrap(pid_t tid);

class TrapGuard {
 public:
  /// `action`: address of the handler's struct sigaction in the target; `syscall_address`: of a `syscall`
  /// there.
  TrapGuard(pid_t pid, std::uint64_t action, std::uint64_t syscall_address)
      : pid_(pid), action_(action), syscall_address_(syscall_address) {}

  /// To be called for a thread stopped by an int3 of ours, on the thread that traces it. Some microseconds,
  /// some tens of them when something has to be put back. True when something had to be.
  bool look_after(pid_t tid);

  /// Threads whose mask was put back, and how often the handler was.
  [[nodiscard]] std::uint64_t masks_restored() const { return masks_; }
  [[nodiscard]] std::uint64_t handlers_restored() const { return handlers_; }

 private:
  [[nodiscard]] bool handler_is_in() const;
  void install_handler(pid_t tid);

  pid_t pid_;
  std::uint64_t action_, syscall_address_;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t masks_ = 0, handlers_ = 0;
};

}  // namespace whomap
