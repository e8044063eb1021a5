// SPDX-License-Identifier: Apache-2.0
#include "core/regions/series.h"

#include <algorithm>

namespace whomap {

void Series::add(std::uint64_t time_ns, double value, std::size_t most) {
  if (!points_.empty() && points_.back().value == value) return;
  points_.push_back({time_ns, value});
  if (points_.size() > std::max<std::size_t>(most, 8)) thin(most);
}

/// Leaves out what can go without leaving a gap longer than the spacing. Parts of the time with a fixed grid
/// would not do: as the grid stretches, it passes over the same points again and again, and takes one each
/// time.
void Series::thin(std::size_t most) {
  const std::uint64_t span = points_.back().time_ns - points_.front().time_ns;
  const std::uint64_t spacing = span / std::max<std::size_t>(most, 8) * 3;
  std::size_t kept = 1;
  for (std::size_t i = 1; i + 1 < points_.size(); ++i)
    if (points_[i + 1].time_ns - points_[kept - 1].time_ns > spacing) points_[kept++] = points_[i];
  points_[kept++] = points_.back();
  points_.resize(kept);
}

void Series::add_scaled(const Series& other, double factor) {
  if (other.points_.empty()) return;
  std::vector<Point> sum;
  std::size_t left = 0, right = 0;
  double left_value = 0, right_value = 0;
  while (left < points_.size() || right < other.points_.size()) {
    const bool take_left = right == other.points_.size() ||
                           (left < points_.size() && points_[left].time_ns <= other.points_[right].time_ns);
    const std::uint64_t time = take_left ? points_[left].time_ns : other.points_[right].time_ns;
    if (take_left)
      left_value = points_[left++].value;
    else
      right_value = other.points_[right++].value;
    if (!sum.empty() && sum.back().time_ns == time)
      sum.back().value = left_value + factor * right_value;
    else
      sum.push_back({time, left_value + factor * right_value});
  }
  points_ = std::move(sum);
}

double Series::at(std::uint64_t time_ns) const {
  const auto after =
      std::upper_bound(points_.begin(), points_.end(), time_ns,
                       [](std::uint64_t time, const Point& point) { return time < point.time_ns; });
  if (after == points_.begin()) return first();
  return (after - 1)->value;
}

std::vector<Sample> Series::resample(std::uint64_t from_ns, std::uint64_t to_ns, std::size_t count) const {
  std::vector<Sample> samples;
  if (points_.empty() || count < 2 || to_ns <= from_ns) return samples;
  samples.reserve(count);
  const double step = static_cast<double>(to_ns - from_ns) / static_cast<double>(count - 1);
  for (std::size_t i = 0; i < count; ++i) {
    const double offset = step * static_cast<double>(i);
    const std::uint64_t time = i + 1 == count ? to_ns : from_ns + static_cast<std::uint64_t>(offset);
    samples.push_back({offset / 1e9, at(time)});
  }
  return samples;
}

}  // namespace whomap
