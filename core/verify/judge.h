// SPDX-License-Identifier: Apache-2.0
// From what was recorded to a verdict. A pure function: the same data gives the same verdict, live or saved.
#pragma once

#include <vector>

#include "core/verify/run.h"
#include "core/verify/verdict.h"

namespace whomap {

Judgement judge(const VerifyRun& run, const JudgeLimits& limits);

/// The points of a run: its measurements without the light ones in between.
std::vector<const Measurement*> points_of(const VerifyRun& run);

}  // namespace whomap
