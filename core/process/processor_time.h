// SPDX-License-Identifier: Apache-2.0
// What a thread has used of a processor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace whomap {

/// Time that the thread has run since it was started, ns; of a process's pid: its first thread. From
/// /proc/PID/schedstat (Documentation/scheduler/sched-stats.rst). Nothing when it has ended, or the kernel is
/// built without it.
std::optional<std::uint64_t> processor_time_ns(pid_t tid);

}  // namespace whomap
