// SPDX-License-Identifier: Apache-2.0
// The numbered folders of /proc: processes, or the threads of one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace whomap {

/// The names in `folder` ("/proc", "/proc/PID/task") that are numbers, ascending; empty when it cannot be
/// read.
std::vector<pid_t> proc_ids(const std::string& folder);

}  // namespace whomap
