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
  std::string trace_problem{};          ///< why there are no effects although they were asked for
};

struct VerifyInput {
  VariantResult subject;
  std::optional<VariantResult> control;    ///< the unfixed variant, measured now
  std::optional<VariantResult> baseline;   ///< a run that was saved earlier: before the fix
  std::optional<Error> control_problem{};  ///< why there is no control although it was asked for
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

/// Why two runs are not the same test, as what `before` measured: "another exercise"; empty when they are.
std::string difference(const VerifyRun& before, const VerifyRun& now);

/// Does a run with this verdict prove that the test sees the leak?
bool shows_the_leak(VerdictClass verdict);

}  // namespace whomap
