// SPDX-License-Identifier: Apache-2.0
#include "core/match/history.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/match/shape_text.h"
#include "core/regions/range_set.h"
#include "core/regions/tracker.h"

namespace whomap {
namespace {

void add_resident(Series& series, std::uint64_t time_ns, const MemoryTotals& totals) {
  if (!totals.rss_anon || (!series.empty() && time_ns <= series.points().back().time_ns)) return;
  series.add(time_ns,
             static_cast<double>(*totals.rss_anon + totals.rss_shmem.value_or(0) + totals.swap.value_or(0)));
}

/// Resident memory as a whole: of the watch's readings, and of the trace, which may come long after.
Series resident_series(const RegionHistory& history, const Snapshot& before, const Snapshot& after) {
  Series series;
  bool trace_begun = false;
  for (const TimedTotals& each : history.totals) {
    if (each.time_ns >= after.time_ns) break;
    if (!trace_begun && each.time_ns >= before.time_ns) {
      add_resident(series, before.time_ns, before.totals);
      trace_begun = true;
    }
    add_resident(series, each.time_ns, each.totals);
  }
  add_resident(series, before.time_ns, before.totals);
  add_resident(series, after.time_ns, after.totals);
  return series;
}

/// Between the end of the watch and the beginning of a trace that came later, if that is a good part of the
/// whole.
template <class Readings>
Unseen unseen_before(const Readings& readings, std::uint64_t trace_ns) {
  std::uint64_t last = 0;
  for (const auto& each : readings)
    if (each.time_ns < trace_ns) last = std::max<std::uint64_t>(last, each.time_ns);
  const std::uint64_t first = readings.empty() ? trace_ns : readings.front().time_ns;
  constexpr std::uint64_t good_part = 20;
  if (last == 0 || (trace_ns - last) * good_part < trace_ns - first) return {};
  return {last, trace_ns};
}

std::optional<RegionTrend> trend_of(const RegionTracker& tracker, AddressRange range, const Unseen& unseen) {
  const std::vector<Region>& regions = tracker.latest().regions;
  const auto at =
      std::lower_bound(regions.begin(), regions.end(), range.start,
                       [](const Region& region, std::uint64_t start) { return region.vma.start < start; });
  if (at == regions.end() || at->vma.range() != range) return std::nullopt;
  const RegionTrack& track =
      tracker.tracks()[tracker.track_of(static_cast<std::size_t>(at - regions.begin()))];
  RegionTrend trend;
  trend.size_delta = track.mapped_growth.last() - track.mapped_growth.first();
  trend.resident_delta = track.resident_growth.last() - track.resident_growth.first();
  const Series& series =
      trend.resident_delta >= least_shape_change ? track.resident_growth : track.mapped_growth;
  trend.shape =
      find_shape(series, tracker.begin_ns(), tracker.regions_ns(), tracker.region_readings(), unseen);
  trend.seconds = static_cast<double>(tracker.last_ns() - track.first_seen_ns) / 1e9;
  return trend;
}

}  // namespace

Result<void> check_history(const RegionHistory& history, const TargetIdentity& target) {
  const TargetIdentity& watched = history.target;
  if (watched.pid == target.pid && watched.start_time == target.start_time) return {};
  return fail(ErrorCode::input_kind,
              watched.pid != target.pid
                  ? fmt::format("{} is a watch of process {}, and the trace is of {}", history.name,
                                watched.pid, target.pid)
                  : fmt::format("{} is a watch of another process that had the pid {} before", history.name,
                                watched.pid),
              "give a watch of the traced process");
}

void add_history(Answer& answer, const Snapshot& before, const Snapshot& after,
                 const RegionHistory& history) {
  WatchedGrowth watched;
  watched.name = history.name;
  RegionTracker tracker;
  bool trace_begun = false;
  for (const Snapshot& snapshot : history.snapshots) {
    if (snapshot.time_ns >= after.time_ns) continue;
    if (!trace_begun && snapshot.time_ns >= before.time_ns) {
      tracker.add(before);
      trace_begun = true;
    }
    if (snapshot.time_ns > tracker.last_ns()) tracker.add(snapshot);
    ++watched.snapshots;
  }
  if (!trace_begun) tracker.add(before);
  tracker.add(after);

  const std::uint64_t begin_ns = tracker.begin_ns();
  watched.seconds = static_cast<double>(after.time_ns - begin_ns) / 1e9;
  const auto readings = static_cast<std::size_t>(
      std::count_if(history.totals.begin(), history.totals.end(),
                    [&](const TimedTotals& each) { return each.time_ns < after.time_ns; }));
  watched.resident = find_shape(resident_series(history, before, after), begin_ns, after.time_ns,
                                readings + 2, unseen_before(history.totals, before.time_ns));
  const Snapshot& first = history.snapshots.front();
  if (first.time_ns < before.time_ns) {
    const RangeSet since = make_range_set(newly_mapped(first, after));
    watched.mapped_bytes = total_size(since);
    for (const RegionAnswer& region : answer.regions)
      if (region.explained_bytes != 0) watched.in_explained_regions += overlap(since, region.range);
  }
  const Unseen unseen = unseen_before(history.snapshots, before.time_ns);
  for (RegionAnswer& region : answer.regions) region.watched = trend_of(tracker, region.range, unseen);
  const Snapshot& last = history.snapshots.back();
  const RangeSet growth = make_range_set(newly_mapped(before, after));
  if (last.time_ns > after.time_ns && !growth.empty()) {
    watched.seconds_after = static_cast<double>(last.time_ns - after.time_ns) / 1e9;
    watched.still_mapped = total_size(intersect(growth, mapped_addresses(last)));
    watched.of_growth = total_size(growth);
  }
  answer.watched = std::move(watched);
}

std::string history_text(const WatchedGrowth& watched) {
  std::string text;
  if (watched.snapshots != 0) {
    text += fmt::format("Watched for {}: anonymous and shared memory {}", seconds_text(watched.seconds),
                        shape_text(watched.resident));
    if (watched.mapped_bytes >= least_mapped_growth)
      text += fmt::format(
          "; {} of the {} newly mapped in that time lies in the regions into which these stacks map",
          share_text(static_cast<double>(watched.in_explained_regions) /
                     static_cast<double>(watched.mapped_bytes)),
          bytes_text(watched.mapped_bytes));
    text += '.';
  }
  if (watched.seconds_after)
    text += fmt::format(
        "{}{} after the trace {} of the {} is still mapped.", text.empty() ? "" : " ",
        seconds_text(*watched.seconds_after),
        share_text(static_cast<double>(watched.still_mapped) / static_cast<double>(watched.of_growth)),
        bytes_text(watched.of_growth));
  return text;
}

}  // namespace whomap
