// SPDX-License-Identifier: Apache-2.0
// Was there a load at all? Memory that stands still proves nothing where nothing happened.
#pragma once

#include <optional>

#include "core/verify/run.h"
#include "core/verify/verdict.h"

namespace whomap {

/// A verdict when the load between the points `middle` and `last` was none: an idle process, an exercise that
/// failed, was too small, or does not reach the process. `judgement` has the operations and the CPU time
/// already; it gets a note where some exercises failed and the rest is enough.
std::optional<Verdict> judge_load(const VerifyRun& run, const Measurement& middle, const Measurement& last,
                                  const JudgeLimits& limits, Judgement& judgement);

/// A verdict when the process hardly worked between two measurements: it is idle, or the exercise does not
/// reach it.
std::optional<Verdict> load_missed(const VerifyRun& run, const Measurement& from, const Measurement& to);

/// CPU time used between two measurements, seconds; nullopt where it is not known.
std::optional<double> cpu_between(const Measurement& from, const Measurement& to);

}  // namespace whomap
