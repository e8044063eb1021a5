// SPDX-License-Identifier: Apache-2.0
// The answer in a word and a sentence. In doubt the weaker statement is made, and says what it does not know.
#pragma once

#include "core/match/attribution.h"
#include "core/match/match.h"
#include "core/regions/growth_shape.h"

namespace whomap {

/// A window shorter than this cannot tell a leak from a cache that is still filling.
inline constexpr double sure_seconds = 600;

/// Sets answer.verdict_class and verdict_text, and every row's verdict.
void judge(Answer& answer, const Attribution& attribution, const FrameRoles& roles);

}  // namespace whomap
