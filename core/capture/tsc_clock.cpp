// SPDX-License-Identifier: Apache-2.0
#include "core/capture/tsc_clock.h"

#include <x86intrin.h>

#include <algorithm>
#include <cmath>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/lines.h"

namespace whomap {
namespace {

/// Enough for every call that is under way when it is read: 64 points are seconds.
constexpr std::size_t segments_kept = 64;

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const auto is_edge = [&](std::size_t i) { return i >= text.size() || text[i] == ' ' || text[i] == '\n'; };
    if ((at == 0 || is_edge(at - 1)) && is_edge(at + word.size())) return true;
  }
  return false;
}

}  // namespace

std::string why_tsc_is_unusable(std::string_view cpuinfo, std::string_view clocksources) {
  bool seen = false;
  while (!cpuinfo.empty()) {
    const std::string_view line = next_line(cpuinfo);
    if (!line.starts_with("flags")) continue;
    seen = true;
    for (const std::string_view flag : {"constant_tsc", "nonstop_tsc"})
      if (!has_word(line, flag)) return "a processor lacks " + std::string(flag);
  }
  if (!seen) return "/proc/cpuinfo names no processor flags";
  if (!has_word(clocksources, "tsc")) return "the kernel does not offer tsc as a clock source";
  return {};
}

std::string why_tsc_is_unusable() {
  const auto cpuinfo = read_file("/proc/cpuinfo");
  if (!cpuinfo) return to_line(cpuinfo.error());
  const auto sources = read_file("/sys/devices/system/clocksource/clocksource0/available_clocksource");
  if (!sources) return to_line(sources.error());
  return why_tsc_is_unusable(*cpuinfo, *sources);
}

ClockPoint read_clocks() {
  // Of several tries the one with the shortest time between the counter's readings: no interrupt came
  // between.
  ClockPoint best;
  std::uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t took = __rdtsc() - before;
    if (took >= shortest) continue;
    shortest = took;
    best = {before + took / 2, ns};
  }
  return best;
}

TscClock::TscClock(std::uint64_t settle_ns) {
  const ClockPoint first = read_clocks();
  ClockPoint second = read_clocks();
  while (second.ns - first.ns < settle_ns) second = read_clocks();
  begin(first, second);
}

TscClock::TscClock(ClockPoint first, ClockPoint second) {
  begin(first, second);
}

void TscClock::begin(ClockPoint first, ClockPoint second) {
  base_ns_ = first.ns;
  first_ = first;
  const double rate = static_cast<double>(second.ns - first.ns) / static_cast<double>(second.tsc - first.tsc);
  segments_.push_back({first.tsc, 0, rate});
}

double TscClock::on(const Segment& segment, std::uint64_t tsc) const {
  const auto ticks = static_cast<double>(static_cast<std::int64_t>(tsc - segment.tsc));
  return segment.ns_offset + ticks * segment.ns_per_tick;
}

void TscClock::add(ClockPoint point) {
  const Segment& last = segments_.back();
  if (point.tsc <= last.tsc || point.ns <= first_.ns) return;
  const double here = on(last, point.tsc);
  const double wanted = static_cast<double>(point.ns - base_ns_);
  last_error_ns_ = std::llround(here - wanted);
  const double rate = wanted / static_cast<double>(point.tsc - first_.tsc);
  // What is missing is made up for over the time of one more segment, at no more than a tenth faster or
  // slower.
  const double span = static_cast<double>(point.tsc - last.tsc) * rate;
  const double correction = std::clamp((wanted - here) / span, -0.1, 0.1);
  segments_.push_back({point.tsc, here, rate * (1 + correction)});
  if (segments_.size() > segments_kept) segments_.pop_front();
}

std::uint64_t TscClock::to_ns(std::uint64_t tsc) const {
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), tsc,
                                  [](std::uint64_t value, const Segment& s) { return value < s.tsc; });
  if (segment != segments_.begin()) --segment;
  return base_ns_ + static_cast<std::uint64_t>(std::llround(on(*segment, tsc)));
}

}  // namespace whomap
