// SPDX-License-Identifier: Apache-2.0
// The words of the whomap-verify format for the values of its enums.
#pragma once

#include <string_view>

#include "core/verify/effect.h"
#include "core/verify/run.h"
#include "core/verify/trend.h"

namespace whomap {

constexpr std::string_view word(TrendState state) {
  switch (state) {
    case TrendState::unknown: return "unknown";
    case TrendState::flat: return "flat";
    case TrendState::grew: return "grew";
    case TrendState::unclear: return "unclear";
  }
  return "unknown";
}

constexpr std::string_view word(Doubt doubt) {
  switch (doubt) {
    case Doubt::none: return "none";
    case Doubt::noise: return "noise";
    case Doubt::spike: return "spike";
    case Doubt::warming_up: return "warming-up";
    case Doubt::slowing: return "slowing";
    case Doubt::ended: return "ended";
    case Doubt::going_on: return "going-on";
    case Doubt::too_short: return "too-short";
  }
  return "none";
}

constexpr std::string_view word(RunEnding ending) {
  switch (ending) {
    case RunEnding::complete: return "complete";
    case RunEnding::interrupted: return "interrupted";
    case RunEnding::target_ended: return "target-ended";
    case RunEnding::target_replaced: return "target-replaced";
    case RunEnding::unreadable: return "unreadable";
    case RunEnding::exercise_failed: return "exercise-failed";
  }
  return "unreadable";
}

constexpr std::string_view word(EffectKind kind) {
  return kind == EffectKind::gone ? "gone" : "present";
}

constexpr std::string_view word(EffectState state) {
  switch (state) {
    case EffectState::passed: return "passed";
    case EffectState::failed: return "failed";
    case EffectState::unproven: return "unproven";
  }
  return "unproven";
}

}  // namespace whomap
