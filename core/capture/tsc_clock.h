// SPDX-License-Identifier: Apache-2.0
// Readings of the time stamp counter as CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace whomap {

/// Whether the counters of all processors can be taken for one clock: cpuinfo (the text of /proc/cpuinfo) has
/// constant_tsc and nonstop_tsc, and the kernel, which takes a counter it found unsteady off that list (it
/// checks them against each other), offers "tsc" in `clocksources` (available_clocksource in
/// /sys/devices/system/clocksource/clocksource0). The reason why not, else empty.
std::string why_tsc_is_unusable(std::string_view cpuinfo, std::string_view clocksources);

/// The same for this machine.
std::string why_tsc_is_unusable();

/// A moment on both clocks.
struct ClockPoint {
  std::uint64_t tsc = 0;
  std::uint64_t ns = 0;
};

/// Reads both clocks at the same moment, to some tens of nanoseconds.
ClockPoint read_clocks();

/// A line from each point to the next. It is continuous and rises everywhere, so that conversion never
/// changes the order of two readings; it runs after CLOCK_MONOTONIC, which the kernel slews, by changing its
/// slope at each point.
class TscClock {
 public:
  /// Takes its first rate from two points at least `settle_ns` apart, which it waits for.
  explicit TscClock(std::uint64_t settle_ns = 5'000'000);
  /// For tests: the first two points.
  TscClock(ClockPoint first, ClockPoint second);

  /// Corrects the rate. Points must rise; call it ten times a second or so.
  void add(ClockPoint point);

  /// Readings from before the oldest kept point are carried on from it.
  [[nodiscard]] std::uint64_t to_ns(std::uint64_t tsc) const;

  /// How far the line was from the clock at the last added point, ns.
  [[nodiscard]] std::int64_t last_error_ns() const { return last_error_ns_; }

 private:
  struct Segment {
    std::uint64_t tsc;
    double ns_offset;  ///< from base_ns_
    double ns_per_tick;
  };
  [[nodiscard]] double on(const Segment& segment, std::uint64_t tsc) const;
  void begin(ClockPoint first, ClockPoint second);

  std::uint64_t base_ns_ = 0;
  ClockPoint first_;
  std::deque<Segment> segments_;
  std::int64_t last_error_ns_ = 0;
};

}  // namespace whomap
