// SPDX-License-Identifier: Apache-2.0
// A trace sees seconds, a watch hours: what the longer history says of the growth that the trace explained.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/match/match.h"

namespace whomap {

/// The watch is one of this trace's process; error: input_kind.
Result<void> check_history(const RegionHistory& history, const TargetIdentity& target);

/// Sets answer.watched, and RegionAnswer::watched of the regions that are in `after`. History later than
/// `after` tells what of the growth stayed.
void add_history(Answer& answer, const Snapshot& before, const Snapshot& after, const RegionHistory& history);

/// One or two sentences for the verdict.
std::string history_text(const WatchedGrowth& watched);

}  // namespace whomap
