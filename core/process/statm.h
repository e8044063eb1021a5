// SPDX-License-Identifier: Apache-2.0
// /proc/PID/statm: the cheapest look at a process's memory. It takes no lock of the process's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace whomap {

/// Pages (man 5 proc_pid_statm). The kernel prints seven numbers; lib and dt have been 0 since Linux 2.6.
struct Statm {
  std::uint64_t size = 0, resident = 0, shared = 0, text = 0, lib = 0, data = 0, dt = 0;
  bool operator==(const Statm&) const = default;
};

/// nullopt when it is not seven numbers or more, as later kernels may print.
std::optional<Statm> parse_statm(std::string_view text);
/// nullopt also when the process cannot be read: whoever asks has a dearer file to ask next.
std::optional<Statm> read_statm(pid_t pid);

}  // namespace whomap
