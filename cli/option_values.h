// SPDX-License-Identifier: Apache-2.0
// The values of options, from their text. Every number on a command line is read here, so that every wrong
// one is refused in the same words: which option, what was given, what it takes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace whomap::cli {

constexpr double seconds_in_a_week = 7 * 86400.0;

// All errors are usage errors; `option` is named in them, "--interval".

/// A whole number from `least` to `most`.
Result<std::uint64_t> count_value(const std::string& option, const std::string& text, std::uint64_t least,
                                  std::uint64_t most);
/// "2.5": seconds from `least` to `most`, without a unit.
Result<double> seconds_value(const std::string& option, const std::string& text, double least, double most);
/// "10": a percentage above 0, up to 100, as a share of 1.
Result<double> percent_value(const std::string& option, const std::string& text);
/// "64K", "100M", "2G", "4096" -> bytes above 0 (binary units).
Result<std::uint64_t> bytes_value(const std::string& option, const std::string& text);

/// "64K", "100M", "2G", "4096" -> bytes (binary units); error for anything else.
Result<std::uint64_t> parse_bytes(const std::string& text);
/// A pid as given on the command line: digits only, 1..2^22 (the kernel's PID_MAX_LIMIT).
Result<pid_t> parse_pid(const std::string& text);
/// "2.5" -> seconds; above 0, up to a week.
Result<double> parse_seconds(const std::string& text);
/// "mmap,munmap" -> x86-64 numbers.
Result<std::vector<std::int64_t>> parse_syscalls(const std::string& text);

}  // namespace whomap::cli
