// SPDX-License-Identifier: Apache-2.0
// How something grows: steadily, in steps, in steps that double, or not any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/slope.h"
#include "core/regions/series.h"

namespace whomap {

enum class GrowthPattern {
  unknown,   ///< too few readings
  flat,      ///< changed by no more than counters lag
  steady,    ///< the interval of the slope is above 0, or it grew in each sixth of the time
  steps,     ///< nearly all of it in a few jumps, flat in between
  doubling,  ///< in jumps of which each is about double the one before: an arena that extends itself
  plateau,   ///< grew, and then not for a third of the time
  falling,
  unclear,  ///< rises and falls by as much as it grew
};
/// "steady", "doubling", ...
std::string_view to_string(GrowthPattern pattern);

struct GrowthStep {
  std::uint64_t time_ns = 0;
  double bytes = 0;
};

struct GrowthShape {
  GrowthPattern pattern = GrowthPattern::unknown;
  double change = 0;              ///< bytes, first to last
  double seconds = 0;             ///< from the first reading to the last
  std::optional<Slope> slope;     ///< bytes per second with its 95 % interval
  std::vector<GrowthStep> steps;  ///< for steps and doubling: the jumps, ascending in time
  double quiet_seconds = 0;       ///< since it last grew

  /// Bytes per second: the slope, or change over time where there are too few readings for one.
  [[nodiscard]] double rate() const;
  /// The same, and 0 for what is flat by now.
  [[nodiscard]] double present_rate() const;
};

/// Below this much newly mapped memory nothing is called growth: one new thread maps more.
inline constexpr std::uint64_t least_mapped_growth = 64 << 10;
/// Below this much more resident memory nothing is called growth.
inline constexpr std::uint64_t least_resident_growth = 256 << 10;
/// Changes below this are called flat: the kernel's counters lag by as much (see verify/trend.h), and so does
/// a heap that is at work.
inline constexpr double least_shape_change = 64.0 * 1024;

/// A time in which nobody looked, between the two readings around it: how the value went from one to the
/// other is not known, and that it stood still until the second is not so.
struct Unseen {
  std::uint64_t from_ns = 0, to_ns = 0;
  [[nodiscard]] bool contains(std::uint64_t time_ns) const { return time_ns > from_ns && time_ns < to_ns; }
  [[nodiscard]] bool overlaps(std::uint64_t begin_ns, std::uint64_t end_ns) const {
    return begin_ns < to_ns && end_ns > from_ns;
  }
};

/// The shape of `series` between two times, of which `readings` readings were made (steps and a ramp differ
/// only by what lies between). Theil-Sen over up to 48 values.
GrowthShape find_shape(const Series& series, std::uint64_t from_ns, std::uint64_t to_ns, std::size_t readings,
                       const Unseen& unseen = {});

/// The longest run of jumps of which each is 1.8 to 2.2 times the one before, those in between left out;
/// empty when it has fewer than three.
std::vector<GrowthStep> doubling_steps(const std::vector<GrowthStep>& jumps);

}  // namespace whomap
