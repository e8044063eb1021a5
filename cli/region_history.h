// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/match/match.h"

namespace whomap::cli {

/// The regions over time from a watch file. Damage in it becomes a line on standard error. Errors: those of
/// read_watch_file().
Result<RegionHistory> load_history(const std::string& path);

}  // namespace whomap::cli
