// SPDX-License-Identifier: Apache-2.0
// The answer in a word and a sentence. In doubt the weaker statement is made, and says what it does not know.
#pragma once

#include "core/match/attribution.h"
#include "core/match/match.h"

namespace whomap {

/// Below this much newly mapped memory nothing is called growth: one new thread maps more.
inline constexpr std::uint64_t least_mapped_growth = 64 << 10;
/// Below this much more resident memory nothing is called growth.
inline constexpr std::uint64_t least_resident_growth = 256 << 10;
/// A window shorter than this cannot tell a leak from a cache that is still filling.
inline constexpr double sure_seconds = 600;

/// Class of one row; needs growth_by_time, counts and culprit.
std::string stack_class(const StackAnswer& row, double seconds);

/// Sets answer.verdict_class and verdict_text, and every row's verdict.
void judge(Answer& answer, const Attribution& attribution);

}  // namespace whomap
