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
std::string longer(const Trend& trend, const GrowthLimits& limits, const VerifyRun& run) {
  const double needed =
      std::max((trend.slope->high - trend.slope->low) / 2, trend.slope->high) / limits.max_rate;
  constexpr double least_factor = 1.5;
  constexpr double sensible_factor = 4;  // beyond, more of the same is not what helps
  if (needed > sensible_factor) return "take more points (--samples 10), or give less noise or another load";
  return fmt::format("measure longer: --interval {:.0f}, or more --samples",
                     std::ceil(run.interval_seconds * std::max(needed, least_factor)));
}

/// A process is warm after a run; a program that verify starts is cold again at the next one.
std::string warm_again(const VerifyRun& run) {
  if (run.command.empty()) return "run verify again on this process, which is warm now";
  return fmt::format(
      "give it a longer warm-up: all up to the middle point is (--samples {}), or start it "
      "yourself, and run verify with -p a second time",
      2 * run.samples);
}

/// Noise that came down from or went up with the start is what a second run does not have.
bool began_cold(const Trend& trend) {
  return std::abs(trend.warm_up) > std::max(std::abs(trend.change), 8 * counter_resolution);
}

}  // namespace

Verdict doubt_verdict(MemoryKind kind, const Trend& trend, const GrowthLimits& limits, const VerifyRun& run) {
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
                 began_cold(trend) ? warm_again(run) : longer(trend, limits, run));
    case Doubt::spike:
      return say(
          fmt::format("{} is {} higher at the last point than at the middle one, but was not shortly before",
                      name, size_text(trend.change)),
          "see with more --samples whether it stays there");
    case Doubt::warming_up:
      return say(
          fmt::format("{} grew by {} up to the middle point and by {} after it: it may still be warming up",
                      name, size_text(trend.warm_up), change_text(trend.change)),
          warm_again(run));
    case Doubt::slowing:
      return say(fmt::format("{} still grows, {}, though ever slower", name, rate_text(trend)),
                 warm_again(run));
    case Doubt::ended:
      return say(
          fmt::format(
              "{} grew by {} between the middle and the last point, and hardly any more in the last {}: "
              "it may still be warming up, a cache that filled",
              name, size_text(trend.change), seconds_text(trend.standstill_seconds)),
          warm_again(run));
    case Doubt::going_on:
      return say(fmt::format("{} grew by {}, less than {}, but at {}, above {}", name,
                             size_text(trend.change), limit, rate_text(trend), rate_limit),
                 "take 6 points or more (--samples), over a longer time");
    case Doubt::too_short:
      return say(fmt::format("{} between the middle and the last point are too short to see growth of {}",
                             seconds_text(trend.window_seconds), rate_limit),
                 fmt::format("measure longer (--interval {:.0f}), or allow a faster growth with --max-rate",
                             std::ceil(2 * counter_resolution / limits.max_rate * run.interval_seconds /
                                       std::max(trend.window_seconds, 1e-3))));
    case Doubt::none: break;
  }
  return say(fmt::format("{} cannot be judged", name), "");
}

}  // namespace whomap
