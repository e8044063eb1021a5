// SPDX-License-Identifier: Apache-2.0
// Mappings that hold next to nothing are a leak too: at vm.max_map_count the process gets no more memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/verify/run.h"
#include "core/verify/verdict.h"

namespace whomap {

/// A verdict when their number grows steadily from the first point to the last and reaches the limit within a
/// day. `anonymous_change` is in bytes, for the text.
std::optional<Verdict> judge_mappings(const VerifyRun& run, const std::vector<const Measurement*>& points,
                                      double anonymous_change);

/// When half of what is allowed, or more, is used at the last point.
std::optional<std::string> mappings_note(const VerifyRun& run, const std::vector<const Measurement*>& points);

}  // namespace whomap
