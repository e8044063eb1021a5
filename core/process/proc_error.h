// SPDX-License-Identifier: Apache-2.0
// Files below /proc/PID, with errors that say what their errno means there.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/base/error.h"

namespace whomap {

/// The content of /proc/PID/`file`. ENOENT and ESRCH mean that the process is gone (no_such_process),
/// EACCES and EPERM that ptrace access was refused (not_permitted; man 5 proc).
Result<std::string> read_proc_file(pid_t pid, const std::string& file);

}  // namespace whomap
