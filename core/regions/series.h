// SPDX-License-Identifier: Apache-2.0
// A value over time, kept for days in bounded memory: only changes are stored, and old ones are thinned.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/slope.h"

namespace whomap {

class Series {
 public:
  struct Point {
    std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC
    double value = 0;           ///< holds until the next point
  };

  /// `time_ns` ascends. A value equal to the last one takes no memory. At more than `most` points (8 at
  /// least) the history is thinned to two thirds of that or less, spread evenly over the time; both ends are
  /// exact.
  void add(std::uint64_t time_ns, double value, std::size_t most = 256);
  /// Adds the other's values to this one's, from the first point of either on.
  void merge(const Series& other) {
    add_scaled(other, 1);
    if (points_.size() > most_merged) thin(most_merged);
  }
  void subtract(const Series& other) { add_scaled(other, -1); }

  [[nodiscard]] bool empty() const { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  [[nodiscard]] double last() const { return points_.empty() ? 0 : points_.back().value; }
  [[nodiscard]] double first() const { return points_.empty() ? 0 : points_.front().value; }
  /// The value at this time; the first one before the first point.
  [[nodiscard]] double at(std::uint64_t time_ns) const;
  /// `count` values at even times from `from_ns` to `to_ns`, both included; seconds count from `from_ns`.
  [[nodiscard]] std::vector<Sample> resample(std::uint64_t from_ns, std::uint64_t to_ns,
                                             std::size_t count) const;

 private:
  static constexpr std::size_t most_merged = 1024;
  void thin(std::size_t most);
  void add_scaled(const Series& other, double factor);
  std::vector<Point> points_;
};

}  // namespace whomap
