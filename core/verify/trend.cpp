// SPDX-License-Identifier: Apache-2.0
#include "core/verify/trend.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace whomap {
namespace {

using Samples = std::span<const TrendSample>;

/// Consecutive samples as groups, each by its lowest one: a leak raises what a process holds when it
/// holds least, work in progress does not.
std::vector<Sample> lower_envelope(Samples samples) {
  constexpr std::size_t most_groups = 24;
  const std::size_t per_group = samples.size() >= 24 ? 4 : samples.size() >= 12 ? 2 : 1;
  const std::size_t groups = std::min(most_groups, samples.size() / per_group);
  std::vector<Sample> envelope;
  for (std::size_t i = 0; i < groups; ++i) {
    const std::size_t begin = i * samples.size() / groups;
    const Samples group = samples.subspan(begin, (i + 1) * samples.size() / groups - begin);
    const auto lowest =
        std::min_element(group.begin(), group.end(),
                         [](const TrendSample& a, const TrendSample& b) { return a.value < b.value; });
    envelope.push_back({lowest->seconds, lowest->value});
  }
  return envelope;
}

double deepest_fall(Samples samples) {
  double highest = samples.front().value;
  double fall = 0;
  for (const TrendSample& sample : samples) {
    highest = std::max(highest, sample.value);
    fall = std::max(fall, highest - sample.value);
  }
  return fall;
}

/// Growth up to the middle is no objection once it is seen to have ended there: less than the limit over the
/// last half of that part.
bool warm_up_has_ended(Samples before, double middle_value, const GrowthLimits& limits) {
  const double half = (before.front().seconds + before.back().seconds) / 2;
  const auto late =
      std::find_if(before.begin(), before.end(), [&](const TrendSample& s) { return s.seconds >= half; });
  if (static_cast<std::size_t>(before.end() - late) < least_samples_for_slope) return false;
  return middle_value - late->value <= limits.max_delta;
}

/// How long it has stood still at the end after growing, at least a fifth of the time; 0 when it has not,
/// or when it had stood still about as long before and then grew on: steps are growth as a ramp is.
double standstill_after_growth(const std::vector<Sample>& envelope) {
  constexpr double small_share =
      0.02;  // of the whole rise, from one group to the next; a ramp of 24 has 0.04
  constexpr double least_share_of_time = 0.2;
  const double rise = envelope.back().value - envelope.front().value;
  const double small = std::max(rise * small_share, 2 * counter_resolution);
  std::size_t begin = 0;  // of the standstill
  while (envelope.back().value - envelope[begin].value > small) ++begin;
  const double still = envelope.back().seconds - envelope[begin].seconds;
  const double all = envelope.back().seconds - envelope.front().seconds;
  double longest_before = 0;
  for (std::size_t from = 0; from < begin; ++from)
    for (std::size_t to = from; to < begin && envelope[to].value - envelope[from].value <= small; ++to)
      longest_before = std::max(longest_before, envelope[to].seconds - envelope[from].seconds);
  return still >= least_share_of_time * all && longest_before < still / 2 ? still : 0;
}

/// Half as fast is not an end; less than that is slowing.
bool goes_on_to_the_end(const std::vector<Sample>& envelope) {
  const std::size_t half = envelope.size() / 2;
  const auto rate = [](const Sample& from, const Sample& to) {
    return (to.value - from.value) / (to.seconds - from.seconds);
  };
  return rate(envelope[half], envelope.back()) >= rate(envelope.front(), envelope[half]) / 2;
}

double deepest_fall(const std::vector<Sample>& samples) {
  double highest = samples.front().value;
  double fall = 0;
  for (const Sample& sample : samples) {
    highest = std::max(highest, sample.value);
    fall = std::max(fall, highest - sample.value);
  }
  return fall;
}

/// A rise by less than what the process was seen to give back, once it had run for a while, may be the rising
/// side of a sawtooth: garbage that is collected now and then.
bool may_be_given_back(Samples all, Samples window, const std::vector<Sample>& envelope) {
  const double from = (all.front().seconds + window.front().seconds) / 2;
  const auto late =
      std::find_if(all.begin(), all.end(), [&](const TrendSample& s) { return s.seconds >= from; });
  const std::vector<Sample> settled = lower_envelope(all.last(static_cast<std::size_t>(all.end() - late)));
  return envelope.back().value - envelope.front().value <= deepest_fall(settled);
}

struct Judged {
  TrendState state = TrendState::flat;
  Doubt doubt = Doubt::none;
};

constexpr Judged grew{TrendState::grew, Doubt::none};
constexpr Judged flat{TrendState::flat, Doubt::none};
constexpr Judged unclear(Doubt doubt) {
  return {TrendState::unclear, doubt};
}

Judged judge_large_change(const Trend& trend, const std::vector<Sample>& envelope, bool certain_slope,
                          bool sawtooth, double fall_of_all, const GrowthLimits& limits) {
  if (!trend.slope) return fall_of_all > limits.max_delta ? unclear(Doubt::noise) : grew;
  const bool rose = envelope.back().value - envelope.front().value > limits.max_delta / 2;
  if (rose && trend.standstill_seconds > 0 && trend.fall <= limits.max_delta) return unclear(Doubt::ended);
  if (certain_slope) return grew;
  if (trend.fall > limits.max_delta) return unclear(Doubt::noise);
  if (!rose) return unclear(Doubt::spike);
  // A step is growth as much as a ramp is, if the process stays on it.
  return sawtooth ? unclear(Doubt::noise) : grew;
}

Judged judge_small_change(const Trend& trend, const std::vector<Sample>& envelope, bool certain_slope,
                          const GrowthLimits& limits, TrendRule rule) {
  if (trend.fall > limits.max_delta) return unclear(Doubt::noise);
  // What is not judged by its rate still grew when it certainly gains the whole limit every minute.
  constexpr double minute = 60;
  if (rule == TrendRule::change_only)
    return certain_slope && trend.slope->low * minute > limits.max_delta ? grew : flat;
  const bool too_short = limits.max_rate * trend.window_seconds < 2 * counter_resolution;
  // Too short to exclude a leak is not too short to see one.
  if (too_short && !(certain_slope && trend.change > 8 * counter_resolution))
    return unclear(Doubt::too_short);
  if (!trend.slope) return trend.rate() <= limits.max_rate ? flat : unclear(Doubt::going_on);
  if (certain_slope && trend.change > counter_resolution)
    return goes_on_to_the_end(envelope) ? grew : unclear(Doubt::slowing);
  // A step near the end leaves the slope of what came before at nothing; the change itself has to be allowed,
  // beyond what the process was seen to give back.
  const double unreturned = trend.change - std::max(trend.fall, 2 * counter_resolution);
  if (unreturned > limits.max_rate * trend.window_seconds) return unclear(Doubt::noise);
  // Both: a wide interval that happens to end below the limit has excluded nothing.
  const double uncertainty = (trend.slope->high - trend.slope->low) / 2;
  return trend.slope->high <= limits.max_rate && uncertainty <= limits.max_rate ? flat
                                                                                : unclear(Doubt::noise);
}

}  // namespace

double Trend::rate() const {
  if (slope) return slope->per_second;
  return window_seconds > 0 ? change / window_seconds : 0;
}

Trend find_trend(const std::vector<TrendSample>& samples, const GrowthLimits& limits, TrendRule rule) {
  Trend trend;
  std::vector<std::size_t> points;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i].point) points.push_back(i);
  if (points.size() < 3) return trend;
  const std::size_t middle = points[middle_of(points.size())];
  const Samples all(samples.data() + points.front(), points.back() - points.front() + 1);
  const Samples before = all.first(middle - points.front() + 1);
  const Samples window = all.subspan(middle - points.front());

  trend.change = window.back().value - window.front().value;
  trend.warm_up = window.front().value - all.front().value;
  trend.fall = deepest_fall(window);
  trend.window_seconds = window.back().seconds - window.front().seconds;
  const std::vector<Sample> envelope = lower_envelope(window);
  trend.slope = theil_sen(envelope);
  if (trend.slope) trend.standstill_seconds = standstill_after_growth(envelope);

  const bool sawtooth = may_be_given_back(all, window, envelope);
  const bool certain_slope =
      trend.slope && trend.slope->low > std::min(least_leak_rate, limits.max_rate) && !sawtooth;
  Judged judged =
      trend.change > limits.max_delta
          ? judge_large_change(trend, envelope, certain_slope, sawtooth, deepest_fall(all), limits)
          : judge_small_change(trend, envelope, certain_slope, limits, rule);
  if (judged.state == TrendState::flat && rule == TrendRule::change_and_rate &&
      trend.warm_up > limits.max_delta && !warm_up_has_ended(before, envelope.front().value, limits))
    judged = unclear(Doubt::warming_up);
  trend.state = judged.state;
  trend.doubt = judged.doubt;
  return trend;
}

}  // namespace whomap
