// SPDX-License-Identifier: Apache-2.0
// A watch from its first reading to its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.h"
#include "core/process/target.h"

namespace whomap::cli {

struct WatchOptions {
  double interval_seconds = 1;
  std::optional<double> seconds;              ///< how long; nullopt: until it is ended
  std::optional<std::uint64_t> until_growth;  ///< bytes; see core's resident_growth()
  std::string output;                         ///< of the watch file; empty: none
  bool json = false;                          ///< the watch file's lines on standard output, no table
};

ExitStatus watch(const Target& target, const WatchOptions& options, const CommonOptions& common);

}  // namespace whomap::cli
