// SPDX-License-Identifier: Apache-2.0
// Why a trend is unclear, and what to do about it.
#pragma once

#include "core/verify/verdict.h"

namespace whomap {

/// `trend` is unclear. `interval_seconds` is what was measured with, to say which would do.
Verdict doubt_verdict(MemoryKind kind, const Trend& trend, const GrowthLimits& limits,
                      double interval_seconds);

}  // namespace whomap
