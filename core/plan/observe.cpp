// SPDX-License-Identifier: Apache-2.0
#include "core/plan/observe.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "core/process/hit_counter.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t debug_registers = HitCounter::most_at_once;
constexpr double assumed_hit_cost = 15e-6;  // seconds; more than was measured, so that the bound holds
constexpr double cost_share = 0.01;         // of the time may go into hits
constexpr double shortest_window = 0.001, longest_window = 0.1;

struct SiteCounter {
  std::size_t site;
  HitCounter counter;
  std::uint64_t hits = 0;
  double open_seconds = 0;
  bool saturated = false;  ///< in some window counting itself took most of the time
};

Result<std::vector<SiteCounter>> open_counters(const Plan& plan, const Target& target,
                                               std::span<const std::size_t> sites) {
  std::vector<SiteCounter> counters;
  for (const std::size_t site : sites) {
    auto counter = HitCounter::open(target, plan.sites[site].syscall_address);
    if (!counter) return tl::make_unexpected(counter.error());
    counters.push_back({site, std::move(*counter)});
  }
  return counters;
}

/// Waits; true when the target ends meanwhile.
bool ended_within(const Target& target, double seconds) {
  pollfd waiting{target.pidfd(), POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(seconds * 1000) + 1) > 0;
}

/// One window: on, wait, off, count. Returns the hits of all counters.
std::uint64_t count_window(std::vector<SiteCounter>& counters, const Target& target, double window) {
  std::uint64_t total = 0;
  const auto begin = Clock::now();
  for (const SiteCounter& each : counters) each.counter.enable(true);
  (void)ended_within(target, window);
  for (const SiteCounter& each : counters) each.counter.enable(false);
  const double open = Seconds(Clock::now() - begin).count();
  for (SiteCounter& counter : counters) {
    const std::uint64_t now = counter.counter.read();
    const std::uint64_t hits = now - std::min(now, counter.hits);
    counter.hits = now;
    counter.open_seconds += open;
    counter.saturated |= static_cast<double>(hits) * assumed_hit_cost > open / 2;
    total += hits;
  }
  return total;
}

/// Windows over one group of sites until `seconds` are over. They follow each other without a pause as long
/// as the hits cost less than their share; pauses right after hits would miss the quiet time of a
/// program that works in a rhythm, and its rate would come out too high.
void observe_group(std::vector<SiteCounter>& counters, const Target& target, double seconds) {
  const auto begin = Clock::now();
  const auto end = begin + Seconds(seconds);
  double window = shortest_window;
  double cost = 0;
  while (Clock::now() < end) {
    const std::uint64_t hits = count_window(counters, target, window);
    window = hits == 0 ? std::min(window * 2, longest_window) : shortest_window;
    cost += static_cast<double>(hits) * assumed_hit_cost;
    const double elapsed = Seconds(Clock::now() - begin).count();
    const double pause = std::min(cost / cost_share - elapsed, seconds - elapsed);
    if (pause > 0 && ended_within(target, pause)) return;
  }
}

}  // namespace

Result<void> observe(Plan& plan, const Target& target, double seconds) {
  allow_many_descriptors();
  std::vector<std::size_t> sites;
  for (std::size_t i = 0; i < plan.sites.size(); ++i)
    if (plan.sites[i].watch == WatchKind::paired_breakpoints) sites.push_back(i);
  const std::size_t groups = (sites.size() + debug_registers - 1) / debug_registers;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t first = group * debug_registers;
    const auto members = std::span(sites).subspan(first, std::min(debug_registers, sites.size() - first));
    auto counters = open_counters(plan, target, members);
    if (!counters) return tl::make_unexpected(counters.error());
    observe_group(*counters, target, seconds / static_cast<double>(groups));
    if (auto alive = target.check(); !alive) return alive;
    for (const SiteCounter& counter : *counters) {
      if (counter.open_seconds <= 0) continue;
      plan.sites[counter.site].observed =
          ObservedRate{static_cast<double>(counter.hits) / counter.open_seconds, counter.saturated};
    }
  }
  plan.observed_how = fmt::format(
      "hits a second, counted for {:.1f} s by debug registers (perf_event_open) in short windows; the target "
      "was not "
      "stopped, its code not touched, and at most {:.0f} % of its time spent",
      seconds, cost_share * 100);
  return {};
}

}  // namespace whomap
