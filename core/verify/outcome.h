// SPDX-License-Identifier: Apache-2.0
// The verdict over all that was done: the subject, the unfixed variant beside it, and the traced effects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/verify/effect.h"
#include "core/verify/judge.h"
#include "core/verify/run.h"

namespace whomap {

/// One measured variant.
struct VariantResult {
  VerifyRun run;
  std::optional<EffectReport> effects;  ///< when --gone or --present traced it
};

struct VerifyInput {
  VariantResult subject;
  std::optional<VariantResult> control;   ///< the unfixed variant, measured now
  std::optional<VariantResult> baseline;  ///< a run that was saved earlier: before the fix
};

struct VerifyOutcome {
  Verdict verdict;
  Judgement subject;
  std::optional<Judgement> control, baseline;
  std::vector<EffectVerdict> effects;  ///< in the order of the subject's findings
};

/// "Fixed" stands only when the unfixed variant fails the same test, where there is one, and every effect is
/// proven. Pure: no clock, no process, no file.
VerifyOutcome conclude(const VerifyInput& input, const JudgeLimits& limits);

}  // namespace whomap
