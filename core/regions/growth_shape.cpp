// SPDX-License-Identifier: Apache-2.0
#include "core/regions/growth_shape.h"

#include <algorithm>
#include <cmath>

namespace whomap {
namespace {

constexpr std::size_t resampled = 48;
constexpr std::size_t least_readings = 4;

/// Values at about even times, several readings for each. Where the value changed shortly before, it is taken
/// at the time of the change: held until the even time it would lag behind a ramp, and come twice.
std::vector<Sample> samples_of(const Series& series, std::uint64_t from_ns, std::uint64_t to_ns,
                               std::size_t readings, const Unseen& unseen) {
  std::size_t count = std::clamp(readings / 2, std::min(readings, least_samples_for_slope), resampled);
  std::vector<Sample> samples;
  if (count < 2) return samples;
  // As many in the time that was seen.
  const double seen =
      1 - static_cast<double>(unseen.to_ns - unseen.from_ns) / static_cast<double>(to_ns - from_ns);
  if (seen < 1)
    count = static_cast<std::size_t>(std::ceil(static_cast<double>(count) / std::max(seen, 0.02))) + 1;
  const std::uint64_t step = (to_ns - from_ns) / (count - 1);
  const std::vector<Series::Point>& points = series.points();
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t time = i + 1 == count ? to_ns : from_ns + i * step;
    while (next < points.size() && points[next].time_ns <= time) ++next;
    if (unseen.contains(time)) continue;
    const bool changed = i != 0 && next != 0 && points[next - 1].time_ns + step / 2 > time;
    const std::uint64_t at = changed ? points[next - 1].time_ns : time;
    samples.push_back({static_cast<double>(at - from_ns) / 1e9, series.at(at)});
  }
  return samples;
}

std::vector<GrowthStep> rises(const Series& series, std::uint64_t from_ns, std::uint64_t to_ns) {
  std::vector<GrowthStep> found;
  double before = series.at(from_ns);
  for (const Series::Point& point : series.points()) {
    if (point.time_ns <= from_ns || point.time_ns > to_ns) continue;
    if (point.value > before) found.push_back({point.time_ns, point.value - before});
    before = point.value;
  }
  return found;
}

double sum(const std::vector<GrowthStep>& steps) {
  double bytes = 0;
  for (const GrowthStep& step : steps) bytes += step.bytes;
  return bytes;
}

/// Those that make up the growth: each at least a twentieth of it.
std::vector<GrowthStep> large_ones(const std::vector<GrowthStep>& all) {
  const double least = sum(all) / 20;
  std::vector<GrowthStep> large;
  for (const GrowthStep& each : all)
    if (each.bytes >= least) large.push_back(each);
  return large;
}

double seconds_between(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / 1e9 : 0;
}

/// When it last grew by more than a fiftieth of all it grew by; `none` when it never did.
std::uint64_t last_growth(const std::vector<GrowthStep>& all, std::uint64_t none) {
  const double least = sum(all) / 50;
  double later = 0;
  for (auto each = all.rbegin(); each != all.rend(); ++each)
    if ((later += each->bytes) >= least) return each->time_ns;
  return none;
}

/// Grew in each sixth of the time, by a quarter of the average at least. A leak whose rate wavers has a wide
/// interval, and is one all the same.
bool keeps_growing(const Series& series, std::uint64_t from_ns, std::uint64_t to_ns, double change,
                   const Unseen& unseen) {
  constexpr std::size_t parts = 6;
  const std::vector<Sample> values = series.resample(from_ns, to_ns, parts + 1);
  const std::uint64_t step = (to_ns - from_ns) / parts;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (!unseen.overlaps(from_ns + (i - 1) * step, from_ns + i * step) &&
        values[i].value - values[i - 1].value < change / parts / 4)
      return false;
  return values.size() == parts + 1;
}

/// The longest time between two of them.
double longest_gap(const std::vector<GrowthStep>& steps) {
  double longest = 0;
  for (std::size_t i = 1; i < steps.size(); ++i)
    longest = std::max(longest, seconds_between(steps[i - 1].time_ns, steps[i].time_ns));
  return longest;
}

}  // namespace

std::string_view to_string(GrowthPattern pattern) {
  switch (pattern) {
    case GrowthPattern::unknown: return "unknown";
    case GrowthPattern::flat: return "flat";
    case GrowthPattern::steady: return "steady";
    case GrowthPattern::steps: return "steps";
    case GrowthPattern::doubling: return "doubling";
    case GrowthPattern::plateau: return "plateau";
    case GrowthPattern::falling: return "falling";
    case GrowthPattern::unclear: return "unclear";
  }
  return "unknown";
}

double GrowthShape::rate() const {
  if (slope && pattern != GrowthPattern::steps && pattern != GrowthPattern::doubling)
    return slope->per_second;
  return seconds > 0 ? change / seconds : 0;
}

double GrowthShape::present_rate() const {
  return pattern == GrowthPattern::flat || pattern == GrowthPattern::plateau ? 0 : rate();
}

std::vector<GrowthStep> doubling_steps(const std::vector<GrowthStep>& jumps) {
  constexpr double least_ratio = 1.8, greatest_ratio = 2.2;
  constexpr std::size_t least_length = 3;
  std::vector<std::size_t> length(jumps.size(), 1), previous(jumps.size(), jumps.size());
  std::size_t best = jumps.size();
  for (std::size_t i = 0; i < jumps.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const double ratio = jumps[i].bytes / jumps[k].bytes;
      if (ratio < least_ratio || ratio > greatest_ratio || length[k] + 1 <= length[i]) continue;
      length[i] = length[k] + 1;
      previous[i] = k;
    }
    if (best == jumps.size() || length[i] > length[best]) best = i;
  }
  if (best == jumps.size() || length[best] < least_length) return {};
  std::vector<GrowthStep> chain;
  for (std::size_t at = best; at != jumps.size(); at = previous[at]) chain.push_back(jumps[at]);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

GrowthShape find_shape(const Series& series, std::uint64_t from_ns, std::uint64_t to_ns, std::size_t readings,
                       const Unseen& unseen) {
  GrowthShape shape;
  shape.seconds = seconds_between(from_ns, to_ns);
  if (series.empty() || shape.seconds <= 0) return shape;
  shape.change = series.at(to_ns) - series.at(from_ns);
  shape.slope = theil_sen(samples_of(series, from_ns, to_ns, readings, unseen));
  const std::vector<GrowthStep> all = rises(series, from_ns, to_ns);
  const std::vector<GrowthStep> large = large_ones(all);
  shape.quiet_seconds = seconds_between(last_growth(all, from_ns), to_ns);
  if (readings < least_readings) return shape;

  const double rise = sum(all);
  if (std::abs(shape.change) < least_shape_change) {
    shape.pattern = rise < least_shape_change ? GrowthPattern::flat : GrowthPattern::unclear;
    if (rise < 4 * least_shape_change) shape.pattern = GrowthPattern::flat;
    return shape;
  }
  if (shape.change < 0) {
    shape.pattern = GrowthPattern::falling;
    return shape;
  }
  // A quarter of what rose may have been given back meanwhile.
  if (shape.change < rise * 3 / 4) {
    const bool certain = shape.slope && shape.slope->low > 0;
    shape.pattern = certain ? GrowthPattern::steady : GrowthPattern::unclear;
    return shape;
  }
  const std::vector<GrowthStep> doubling = doubling_steps(all);
  if (sum(doubling) >= rise / 2) {
    shape.pattern = GrowthPattern::doubling;
    shape.steps = doubling;
    return shape;
  }
  const bool few = large.size() * 3 <= readings && sum(large) >= rise * 9 / 10;
  const double gap = few ? longest_gap(large) : 0;
  if (shape.quiet_seconds >= shape.seconds / 3 && shape.quiet_seconds > 2 * gap) {
    shape.pattern = GrowthPattern::plateau;
  } else if (few && large.size() >= 2) {
    shape.pattern = GrowthPattern::steps;
    shape.steps = large;
  } else if ((shape.slope && shape.slope->low > 0) ||
             (readings >= 12 && keeps_growing(series, from_ns, to_ns, shape.change, unseen))) {
    shape.pattern = GrowthPattern::steady;
  } else {
    // All up, and too few readings for an interval: it may still become a trend.
    shape.pattern = shape.slope ? GrowthPattern::unclear : GrowthPattern::unknown;
  }
  return shape;
}

}  // namespace whomap
