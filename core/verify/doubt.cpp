// SPDX-License-Identifier: Apache-2.0
#include "core/verify/doubt.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/amount.h"

namespace whomap {
namespace {

/// With the same noise and as many readings, the interval narrows as the time grows.
double longer_interval(const Trend& trend, const GrowthLimits& limits, double interval_seconds) {
  const double needed =
      std::max((trend.slope->high - trend.slope->low) / 2, trend.slope->high) / limits.max_rate;
  constexpr double a_day = 86400;
  return std::min(std::ceil(interval_seconds * std::max(needed, 1.5)), a_day);
}

}  // namespace

Verdict doubt_verdict(MemoryKind kind, const Trend& trend, const GrowthLimits& limits,
                      double interval_seconds) {
  const auto say = [](std::string text, std::string remedy) {
    return Verdict{VerdictClass::inconclusive, std::move(text), std::move(remedy)};
  };
  const std::string_view name = name_of(kind);
  const std::string limit = size_text(limits.max_delta);
  const std::string rate_limit = per_minute_text(limits.max_rate);
  switch (trend.doubt) {
    case Doubt::noise:
      if (trend.fall > limits.max_delta || !trend.slope)
        return say(
            fmt::format("{} rises and falls by {}, more than the limit of {}", name,
                        size_text(std::max(trend.fall, std::abs(trend.change))), limit),
            "take more points (--samples 10), over a longer time, or raise --max-delta above the noise");
      return say(fmt::format("{} changed by {} at {}, {} to exclude growth of {}", name,
                             change_text(trend.change), rate_text(trend),
                             trend.slope->high > limits.max_rate ? "too much" : "too uncertain", rate_limit),
                 fmt::format("measure longer: --interval {:.0f}, or more --samples",
                             longer_interval(trend, limits, interval_seconds)));
    case Doubt::spike:
      return say(
          fmt::format("{} is {} higher at the last point than at the middle one, but was not shortly before",
                      name, size_text(trend.change)),
          "see with more --samples whether it stays there");
    case Doubt::warming_up:
      return say(
          fmt::format("{} grew by {} up to the middle point and by {} after it: it may still be warming up",
                      name, size_text(trend.warm_up), change_text(trend.change)),
          "let it warm up first, then measure with more --samples or a longer --interval");
    case Doubt::slowing:
      return say(fmt::format("{} still grows, {}, though ever slower", name, rate_text(trend)),
                 "measure longer, with more --samples, until it stands still or does not");
    case Doubt::going_on:
      return say(fmt::format("{} grew by {}, less than {}, but at {}, above {}", name,
                             size_text(trend.change), limit, rate_text(trend), rate_limit),
                 "take 6 points or more (--samples), over a longer time");
    case Doubt::too_short:
      return say(fmt::format("{} between the middle and the last point are too short to see growth of {}",
                             seconds_text(trend.window_seconds), rate_limit),
                 fmt::format("measure longer (--interval {:.0f}), or allow a faster growth with --max-rate",
                             std::ceil(2 * counter_resolution / limits.max_rate * interval_seconds /
                                       std::max(trend.window_seconds, 1e-3))));
    case Doubt::none: break;
  }
  return say(fmt::format("{} cannot be judged", name), "");
}

}  // namespace whomap
