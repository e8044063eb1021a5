// SPDX-License-Identifier: Apache-2.0
#include "core/stub/trace_stop.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include "core/base/clock.h"

namespace whomap {

bool is_signal_stop(int wait_status) {
  return WIFSTOPPED(wait_status) && wait_status >> 16 == 0 && (WSTOPSIG(wait_status) & 0x80) == 0;
}

Result<int> wait_for_any_stop(pid_t tid, std::uint64_t deadline_ns) {
  while (true) {
    int status = 0;
    const pid_t got = ::waitpid(tid, &status, __WALL | WNOHANG);
    if (got < 0 || (got == tid && !WIFSTOPPED(status)))
      return fail(ErrorCode::process_ended, fmt::format("thread {} has ended", tid));
    if (got == tid) return status;
    if (monotonic_ns() > deadline_ns)
      return fail(ErrorCode::not_stoppable, fmt::format("thread {} did not stop again", tid));
  }
}

Result<int> wait_for_stop(pid_t tid, int request, std::vector<HeldSignal>& late) {
  const std::uint64_t deadline = monotonic_ns() + stop_patience_ns;
  while (true) {
    auto status = wait_for_any_stop(tid, deadline);
    if (!status || !is_signal_stop(*status)) return status;
    late.push_back({tid, WSTOPSIG(*status)});
    ::ptrace(static_cast<__ptrace_request>(request), tid, nullptr, nullptr);
  }
}

}  // namespace whomap
