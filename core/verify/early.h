// SPDX-License-Identifier: Apache-2.0
// What will spoil the verdict and is known before the end: said when it can still be changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/verify/outcome.h"

namespace whomap {

/// Before anything is measured. `planned` has the options of the run and no measurements; `baseline` may be
/// nullptr. One line each, with what to do.
std::vector<std::string> early_doubts(const VerifyRun& planned, const JudgeLimits& limits,
                                      const VariantResult* baseline,
                                      const std::vector<EffectPattern>& effects);

/// At a point of the run that is not the last: does the load reach the process?
std::optional<std::string> doubt_so_far(const VerifyRun& so_far);

}  // namespace whomap
