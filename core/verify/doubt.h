// SPDX-License-Identifier: Apache-2.0
// Why a trend is unclear, and what to do about it.
#pragma once

#include "core/verify/run.h"
#include "core/verify/verdict.h"

namespace whomap {

/// `trend` is unclear, and was found in `run`, whose options the remedy builds on.
Verdict doubt_verdict(MemoryKind kind, const Trend& trend, const GrowthLimits& limits, const VerifyRun& run);

}  // namespace whomap
