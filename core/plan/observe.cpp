// SPDX-License-Identifier: Apache-2.0
#include "core/plan/observe.h"

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

#include "core/base/unique_fd.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t debug_registers = 4;  // x86: DR0 to DR3
constexpr double assumed_hit_cost = 15e-6;  // seconds; more than was measured, so that the bound holds
constexpr double cost_share = 0.01;         // of the time may go into hits
constexpr double shortest_window = 0.001, longest_window = 0.1;

/// Counters for one site, one for each thread; threads that start later are counted too (inherit).
struct SiteCounter {
  std::size_t site;
  std::vector<UniqueFd> threads;
  std::uint64_t hits = 0;
  double open_seconds = 0;
  bool saturated = false;  ///< in some window counting itself took most of the time

  [[nodiscard]] std::uint64_t read_all() const {
    std::uint64_t sum = 0;
    for (const UniqueFd& fd : threads) {
      std::uint64_t value = 0;
      if (::read(fd.get(), &value, sizeof value) == sizeof value) sum += value;
    }
    return sum;
  }
  void enable(bool on) const {
    for (const UniqueFd& fd : threads)
      (void)::ioctl(fd.get(), on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
  }
};

Result<UniqueFd> open_counter(pid_t tid, std::uint64_t address) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_BREAKPOINT;
  attributes.bp_type = HW_BREAKPOINT_X;
  attributes.bp_addr = address;
  attributes.bp_len =
      sizeof(long);  // what the kernel wants for execution breakpoints on x86 (arch_build_bp_info)
  attributes.disabled = 1;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  UniqueFd fd(
      static_cast<int>(::syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (fd.valid()) return fd;
  const bool refused = errno == EACCES || errno == EPERM;
  return fail(refused ? ErrorCode::not_permitted : ErrorCode::kernel_feature,
              "the kernel gives no counter for hits (perf_event_open)",
              refused ? "run as root, or lower kernel.perf_event_paranoid" : "leave --observe out", errno);
}

Result<std::vector<SiteCounter>> open_counters(const Plan& plan, const Target& target,
                                               std::span<const std::size_t> sites) {
  std::vector<SiteCounter> counters;
  for (const std::size_t site : sites) {
    SiteCounter counter{site, {}};
    for (const pid_t tid : target.threads()) {
      auto fd = open_counter(tid, plan.sites[site].syscall_address);
      if (fd)
        counter.threads.push_back(std::move(*fd));
      else if (fd.error().os_error != ESRCH)
        return tl::make_unexpected(fd.error());  // ESRCH: that thread has ended
    }
    counters.push_back(std::move(counter));
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
  for (const SiteCounter& counter : counters) counter.enable(true);
  (void)ended_within(target, window);
  for (const SiteCounter& counter : counters) counter.enable(false);
  const double open = Seconds(Clock::now() - begin).count();
  for (SiteCounter& counter : counters) {
    const std::uint64_t now = counter.read_all();
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

/// A counter needs a descriptor for every thread and site; the soft limit is often 1024.
void allow_many_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
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
