// SPDX-License-Identifier: Apache-2.0
// Sentences of the verdict.
#pragma once

#include <string>
#include <vector>

#include "core/match/culprit_group.h"
#include "core/match/match.h"

namespace whomap {

/// "98.4 %"
std::string share_of(std::uint64_t part, std::uint64_t whole);
/// "10.0 s"; a log without times has none.
std::string span_text(const Answer& answer);
/// "6.2 MiB of the 6.3 MiB newly mapped in 10.0 s (98.4 %)", and what of it is resident where that is little.
std::string amount(const Answer& answer, const CulpritGroup& group);
/// What hooks have to do with it; these sentences begin with a space, or are empty.
std::string hook_text(const StackAnswer& row);
/// Who comes after the first, where they hold a tenth of the growth or more.
std::string spread_text(const Answer& answer, const std::vector<GrowthByWay>& ways);
/// What the captured calls did, for the verdicts that name no stack.
std::string traffic_text(const Answer& answer);

std::string leak_text(const Answer& answer, const CulpritGroup& group);
std::string plateau_text(const Answer& answer, const CulpritGroup& group);
std::string malloc_text(const Answer& answer, const GrowthByWay& way);
std::string retention_text(const Answer& answer, const CulpritGroup& group);
std::string thread_stacks_text(const Answer& answer, const CulpritGroup& group);

/// The region that became resident most; nullptr where none did.
const RegionAnswer* most_resident(const Answer& answer);
/// The same of the part that was mapped before the trace.
const RegionAnswer* most_touched(const Answer& answer);
/// "7f00-7f80 (anonymous) by 3 MiB"
std::string region_text(const RegionAnswer& region);

}  // namespace whomap
