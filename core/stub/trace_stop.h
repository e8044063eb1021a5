// SPDX-License-Identifier: Apache-2.0
// Waiting for one thread that runs for us under ptrace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace whomap {

/// A signal that a thread was about to get.
struct HeldSignal {
  pid_t tid;
  int signal;
};

/// Waits until `tid` stops, whatever for, and returns the wait status. Errors: process_ended; not_stoppable
/// at `deadline_ns` (CLOCK_MONOTONIC).
Result<int> wait_for_any_stop(pid_t tid, std::uint64_t deadline_ns);

/// Waits until `tid` stops after it was resumed by the ptrace request `request`. With all signals blocked in
/// it only SIGSTOP can come in between: that is put into `late`, to be sent again, and the thread resumed
/// once more. Returns the wait status. Errors: process_ended; not_stoppable after stop_patience_ns.
Result<int> wait_for_stop(pid_t tid, int request, std::vector<HeldSignal>& late);

/// Is it the stop in which a signal is about to be delivered? (man 2 ptrace: no event; system call stops
/// carry 0x80 with PTRACE_O_TRACESYSGOOD.)
bool is_signal_stop(int wait_status);

/// How long a thread that was resumed for us may take to stop again.
constexpr std::uint64_t stop_patience_ns = 10'000'000'000;

}  // namespace whomap
