// SPDX-License-Identifier: Apache-2.0
// Files below /proc/PID, with errors that say what their errno means there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace whomap {

/// The content of /proc/PID/`file`. ENOENT and ESRCH mean that the process is gone (no_such_process),
/// EACCES and EPERM that ptrace access was refused (not_permitted; man 5 proc).
Result<std::string> read_proc_file(pid_t pid, const std::string& file);

/// The same in pieces, for the files that may have many megabytes (see read_in_pieces). No piece is begun
/// after `deadline_ns` (CLOCK_MONOTONIC): input_unreadable, saying so.
Result<void> read_proc_pieces(pid_t pid, const std::string& file,
                              const std::function<void(std::string_view)>& piece,
                              std::optional<std::uint64_t> deadline_ns = std::nullopt);

}  // namespace whomap
