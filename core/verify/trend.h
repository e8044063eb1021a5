// SPDX-License-Identifier: Apache-2.0
// One kind of memory over the whole run: did it grow between the middle and the last point?
#pragma once

#include <optional>
#include <vector>

#include "core/base/slope.h"

namespace whomap {

/// What counts as growth.
struct GrowthLimits {
  double max_delta = 100.0 * 1024 * 1024;     ///< bytes, middle to last point
  double max_rate = 10.0 * 1024 * 1024 / 60;  ///< bytes per second that must be excluded for "flat"
};

/// A slope that is certain counts from here on, bytes per second (1 MiB a minute is 1.4 GiB a day), unless
/// GrowthLimits::max_rate is smaller.
constexpr double least_leak_rate = 1024.0 * 1024 / 60;

/// Differences below this say nothing: since Linux 6.2 /proc/PID/status sums per-CPU counters that may lag by
/// max(32, 2 * CPUs) pages each (lib/percpu_counter.c), before that 64 page faults of each thread.
constexpr double counter_resolution = 256.0 * 1024;

enum class TrendState { unknown, flat, grew, unclear };

enum class Doubt {
  none,
  noise,       ///< rises and falls by more than what is to be decided
  spike,       ///< the last point is high and nothing before it
  warming_up,  ///< grew more than allowed up to the middle, and when that ended is not known
  slowing,     ///< grows by less than allowed, ever slower
  ended,       ///< grew by more than allowed and then stood still: a cache that filled
  going_on,    ///< grows by less than allowed, too few readings to say more
  too_short,   ///< in so little time the rate to be excluded is below the counters' resolution
};

struct TrendSample {
  double seconds = 0;
  double value = 0;  ///< bytes
  bool point = false;
};

struct Trend {
  TrendState state = TrendState::unknown;
  Doubt doubt = Doubt::none;
  double change = 0;          ///< middle to last point
  double warm_up = 0;         ///< first to middle point
  double fall = 0;            ///< the deepest fall from an earlier value within the judged part
  double window_seconds = 0;  ///< middle to last point
  double standstill_seconds =
      0;  ///< at the end of the judged part, after growth that filled the rest of it; or 0
  std::optional<Slope> slope;  ///< of the lower envelope of the judged part, bytes per second

  /// Bytes per second: the slope, or change over time where there are too few readings for one.
  [[nodiscard]] double rate() const;
  /// The interval excludes that nothing grows: then it is evidence, and otherwise the change is.
  [[nodiscard]] bool certainly_rises() const { return slope && slope->low > 0; }
};

enum class TrendRule {
  change_and_rate,
  change_only,  ///< file pages: touching a program's files for the first time has a slope and an end
};

/// The middle one of `count` points (the earlier of two).
constexpr std::size_t middle_of(std::size_t count) {
  return (count - 1) / 2;
}

/// State unknown when there are fewer than three points. `samples` ascend in time.
Trend find_trend(const std::vector<TrendSample>& samples, const GrowthLimits& limits, TrendRule rule);

}  // namespace whomap
