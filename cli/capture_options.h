// SPDX-License-Identifier: Apache-2.0
// The options that say what is captured and for how long; trace, script and collect share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace whomap::cli {

struct CaptureOptions {
  double seconds = 10;
  std::optional<std::uint64_t> max_hits;
  double max_slowdown = 0.1;           ///< share of one thread's time
  std::vector<std::int64_t> syscalls;  ///< x86-64 numbers; empty: the default ones
};

/// Adds -d, --max-hits, --max-slowdown and --syscalls.
void add_capture_options(CommandLine& line);

/// Their values; a usage error that names the wrong one.
Result<CaptureOptions> capture_options(const CommandLine& line);

}  // namespace whomap::cli
