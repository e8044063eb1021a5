// SPDX-License-Identifier: Apache-2.0
#include "cli/probe_engine.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/stub_outcome.h"
#include "core/capture/ring_source.h"
#include "core/process/hit_counter.h"

namespace whomap::cli {
namespace {

std::string describe(const Site& site, const std::string& reason) {
  return fmt::format("{}+{:#x} ({}): {}", site.symbol.empty() ? "?" : printable(site.symbol),
                     site.symbol.empty() ? site.syscall_offset : site.symbol_offset, printable(site.module),
                     reason);
}

/// Does the probe engine leave this site out although calls that are watched may come through it?
bool is_left_out(const Site& site) {
  return site.watch != WatchKind::none && !site.stub.possible;
}

/// Sites that cannot have a stub: whether one of them was passed during the trace is counted by debug
/// registers, as far as there are any. Nearly always none was, and then nothing is missing.
class UnwatchedSites {
 public:
  /// `passes`: a second, see passes_left_out.
  UnwatchedSites(const Target& target, const Plan& plan, const std::vector<SiteWithoutStub>& sites,
                 double passes) {
    // A hit costs the thread some 12 us (core/process/hit_counter.h).
    constexpr double seconds_per_hit = 12e-6, most_of_the_time = 0.01;
    often_passed_ = passes * seconds_per_hit > most_of_the_time;
    allow_many_descriptors();
    for (const SiteWithoutStub& each : sites) {
      Unwatched unwatched{describe(plan.sites[each.site], each.reason), std::nullopt};
      if (!often_passed_ && counted_ < HitCounter::most_at_once)
        if (auto counter = HitCounter::open(target, plan.sites[each.site].syscall_address)) {
          counter->enable(true);
          unwatched.counter = std::move(*counter);
          ++counted_;
        }
      sites_.push_back(std::move(unwatched));
    }
  }

  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    for (const Unwatched& each : sites_) {
      if (!each.counter) {
        lines.push_back(often_passed_ ? "not watched, and passed too often to be counted: " + each.text
                                      : "not watched: " + each.text);
        continue;
      }
      if (const std::uint64_t hits = each.counter->read(); hits != 0)
        lines.push_back(fmt::format(
            "not watched, and passed {} times with calls of any kind (--engine gdb watches it): {}", hits,
            each.text));
    }
    if (lines.empty() && !sites_.empty())
      lines.push_back(fmt::format(
          "{} sites have no stub, and none of them was passed (counted by debug registers)", sites_.size()));
    return lines;
  }

 private:
  struct Unwatched {
    std::string text;
    std::optional<HitCounter> counter;
  };
  std::vector<Unwatched> sites_;
  std::size_t counted_ = 0;
  bool often_passed_ = false;
};

}  // namespace

bool probe_sees_everything(const Plan& plan) {
  std::size_t without = 0;
  for (const Site& site : plan.sites) {
    if (!is_left_out(site)) continue;
    if (site.kind != NumberKind::variable) return false;
    ++without;
  }
  return without <= HitCounter::most_at_once;
}

double count_passes_left_out(const Target& target, const Plan& plan) {
  constexpr int watched_ms = 200;
  constexpr double ms_per_second = 1000;
  allow_many_descriptors();
  std::vector<HitCounter> counters;
  for (const Site& site : plan.sites)
    if (is_left_out(site) && counters.size() < HitCounter::most_at_once)
      if (auto counter = HitCounter::open(target, site.syscall_address))
        counters.push_back(std::move(*counter));
  for (const HitCounter& each : counters) each.enable(true);
  if (!counters.empty()) ::poll(nullptr, 0, watched_ms);
  std::uint64_t hits = 0;
  for (const HitCounter& each : counters) {
    each.enable(false);
    hits += each.read();
  }
  return static_cast<double>(hits) * ms_per_second / watched_ms;
}

std::vector<std::string> sites_without_stub(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Site& site : plan.sites)
    if (is_left_out(site)) lines.push_back(describe(site, site.stub.reason));
  return lines;
}

Result<RecordingResult> trace_with_probe(const OpenTarget& target, const Plan& plan,
                                         const RecordingOptions& recording, const RecordLimits& limits,
                                         double passes_left_out, const CommonOptions& common) {
  auto stubs = start_stubs(plan, "ring");
  if (!stubs) return tl::make_unexpected(stubs.error());
  RecordingOptions options = recording;
  options.engine = "probe";
  options.own_memory = [&stubs] { return own_memory(stubs->installed().state); };
  const UnwatchedSites unwatched(target.target, plan, stubs->installed().left_out, passes_left_out);
  auto source = open_ring(target.target, plan, *stubs, limits);
  if (!source) {
    (void)remove_and_report(*stubs, common);
    return tl::make_unexpected(source.error());
  }
  auto result =
      record(target.target, plan, **source, options, progress_printer(common, recording.seconds), [&](bool) {
        StopTimes stops = remove_and_report(*stubs, common);
        stops.notes = unwatched.notes();
        return stops;
      });
  if (!result) return result;
  if (!result->armed) {
    if (const auto reason = discard_unarmed(recording, *result)) return tl::make_unexpected(*reason);
    return fail(ErrorCode::not_permitted,
                fmt::format("the stubs in process {} could not be armed", plan.target.pid));
  }
  return result;
}

}  // namespace whomap::cli
