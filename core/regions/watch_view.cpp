// SPDX-License-Identifier: Apache-2.0
#include "core/regions/watch_view.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace whomap {
namespace {

/// A group of no more regions than this shows each of them.
constexpr std::uint64_t few = 3;

double growth_of(const Series& series) {
  return series.last() - series.first();
}

class ViewMaker {
 public:
  ViewMaker(const RegionTracker& tracker, const WatchViewOptions& options)
      : tracker_(tracker), options_(options), to_ns_(tracker.last_ns()), from_ns_(tracker.begin_ns()) {
    const auto window = static_cast<std::uint64_t>(options.window_seconds * 1e9);
    if (window != 0 && to_ns_ - from_ns_ > window) from_ns_ = to_ns_ - window;
  }

  WatchView make() {
    WatchView view;
    view.seconds = static_cast<double>(to_ns_ - tracker_.begin_ns()) / 1e9;
    view.last_ns = to_ns_;
    view.regions = tracker_.latest().regions.size();
    view.threads = tracker_.threads();
    view.first_threads = tracker_.first_threads();
    const RegionTracker::Totals& totals = tracker_.totals();
    view.totals.rss_anon = shape(totals.rss_anon, tracker_.readings());
    view.totals.rss_file = shape(totals.rss_file, tracker_.readings());
    view.totals.rss_shmem = shape(totals.rss_shmem, tracker_.readings());
    view.totals.swap = shape(totals.swap, tracker_.readings());
    view.totals.page_tables = shape(totals.page_tables, tracker_.readings());
    view.totals.mapped = shape(tracker_.mapped(), tracker_.region_readings());
    view.totals.mapped_bytes = static_cast<std::uint64_t>(tracker_.mapped().last());
    view.totals.rss_anon_bytes = totals.rss_anon.last();
    add_rows(view);
    find_leading(view);
    sort_watch_rows(view.rows, options_.sort);
    return view;
  }

 private:
  [[nodiscard]] GrowthShape shape(const Series& series, std::uint64_t readings) const {
    const double whole = static_cast<double>(to_ns_ - tracker_.begin_ns());
    const double part = whole > 0 ? static_cast<double>(to_ns_ - from_ns_) / whole : 1;
    return find_shape(series, from_ns_, to_ns_,
                      static_cast<std::size_t>(std::ceil(static_cast<double>(readings) * part)));
  }

  void add_rows(WatchView& view) {
    const auto& groups = tracker_.groups();
    std::vector<std::vector<std::size_t>> members(groups.size());
    for (std::size_t i = 0; i < tracker_.latest().regions.size(); ++i)
      members[tracker_.tracks()[tracker_.track_of(i)].group].push_back(i);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (members[g].empty()) continue;
      std::vector<std::size_t> single;
      if (members[g].size() <= few)
        single = std::move(members[g]);
      else
        single = take_leaders(groups[g], members[g]);
      for (const std::size_t i : single) view.rows.push_back(region_row(i));
      if (!members[g].empty()) view.rows.push_back(group_row(groups[g], members[g], single));
    }
  }

  /// The regions that account for the growth of their group: up to three that have a quarter of it each. A
  /// group whose regions come and go grows by none of them.
  std::vector<std::size_t> take_leaders(const RegionGroup& group, std::vector<std::size_t>& members) const {
    const bool by_size = growth_of(group.resident_series) < least_shape_change;
    const double growth = by_size ? growth_of(group.size_series) : growth_of(group.resident_series);
    if (growth < least_shape_change) return {};
    std::vector<std::pair<double, std::size_t>> grown;
    for (const std::size_t i : members) {
      const RegionTrack& track = tracker_.tracks()[tracker_.track_of(i)];
      const double bytes = growth_of(by_size ? track.mapped_growth : track.resident_growth);
      if (bytes >= growth / 4 && bytes <= growth * 1.25) grown.emplace_back(bytes, i);
    }
    std::sort(grown.rbegin(), grown.rend());
    if (grown.size() > few) grown.resize(few);
    std::vector<std::size_t> leaders;
    for (const auto& [bytes, i] : grown) leaders.push_back(i);
    std::erase_if(members, [&](std::size_t i) {
      return std::find(leaders.begin(), leaders.end(), i) != leaders.end();
    });
    return leaders;
  }

  [[nodiscard]] WatchRow region_row(std::size_t index) const {
    const Region& region = tracker_.latest().regions[index];
    const RegionTrack& track = tracker_.tracks()[tracker_.track_of(index)];
    WatchRow row;
    RegionClass kind = classify(tracker_.latest(), index);
    row.kind = kind.kind;
    row.evidence = std::move(kind.evidence);
    row.name = region.vma.name;
    row.range = region.vma.range();
    row.traits = traits(region);
    row.changes = track.changes;
    row.first_seen_ns = track.first_seen_ns;
    row.size = region.vma.size();
    row.resident = tracker_.resident_of(index);
    finish(row, track.mapped_growth, track.resident_growth);
    add_recent(row, track.resident);
    return row;
  }

  [[nodiscard]] WatchRow group_row(const RegionGroup& group, const std::vector<std::size_t>& members,
                                   const std::vector<std::size_t>& shown_apart) const {
    const auto largest = *std::max_element(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return tracker_.resident_of(a) < tracker_.resident_of(b);
    });
    WatchRow row;
    row.kind = group.kind;
    row.name = group.name;
    row.count = members.size();
    row.evidence = classify(tracker_.latest(), largest).evidence;
    row.first_seen_ns = group.first_seen_ns;
    row.size = group.size;
    row.resident = group.resident;
    Series size = group.size_series, resident = group.resident_series;
    for (const std::size_t i : shown_apart) {
      const RegionTrack& track = tracker_.tracks()[tracker_.track_of(i)];
      row.size -= tracker_.latest().regions[i].vma.size();
      row.resident -= tracker_.resident_of(i);
      size.subtract(track.size);
      resident.subtract(track.resident);
    }
    finish(row, size, resident);
    add_recent(row, resident);
    return row;
  }

  void finish(WatchRow& row, const Series& size, const Series& resident) const {
    row.size_growth = growth_of(size);
    row.resident_growth = growth_of(resident);
    row.shape = shape(resident, tracker_.region_readings());
    const GrowthShape of_size = shape(size, tracker_.region_readings());
    row.shape_is_of_size =
        std::abs(row.shape.change) < least_shape_change && std::abs(of_size.change) >= least_shape_change;
    if (row.shape_is_of_size) row.shape = of_size;
  }

  void add_recent(WatchRow& row, const Series& resident) const {
    if (options_.recent_values < 2) return;
    for (const Sample& each : resident.resample(from_ns_, to_ns_, options_.recent_values))
      row.recent.push_back(each.value);
  }

  static void find_leading(WatchView& view) {
    std::vector<const WatchRow*> grown;
    double sum = 0;
    for (const WatchRow& row : view.rows) {
      if (row.shape_is_of_size || row.shape.change <= 0) continue;
      grown.push_back(&row);
      sum += row.shape.change;
    }
    std::sort(grown.begin(), grown.end(),
              [](const WatchRow* a, const WatchRow* b) { return a->shape.change > b->shape.change; });
    constexpr double nearly_all = 0.9;
    double part = 0;
    for (const WatchRow* row : grown) {
      if (view.leading_rows == few || part >= nearly_all * sum) break;
      part += row->shape.change;
      ++view.leading_rows;
      view.leading_regions += row->count;
    }
    view.leading_share = sum > 0 ? part / sum : 0;
  }

  const RegionTracker& tracker_;
  const WatchViewOptions& options_;
  std::uint64_t to_ns_, from_ns_;
};

}  // namespace

WatchView view_of(const RegionTracker& tracker, const WatchViewOptions& options) {
  return ViewMaker(tracker, options).make();
}

void sort_watch_rows(std::vector<WatchRow>& rows, WatchSort by) {
  const auto less = [&](const WatchRow& a, const WatchRow& b) {
    switch (by) {
      case WatchSort::rate:
        // Resident growth costs memory now; growth of mere addresses comes after it.
        if (a.shape_is_of_size != b.shape_is_of_size) {
          const WatchRow& resident = a.shape_is_of_size ? b : a;
          if (resident.shape.rate() > 0) return !a.shape_is_of_size;
        }
        if (a.shape.rate() != b.shape.rate()) return a.shape.rate() > b.shape.rate();
        break;
      case WatchSort::resident: break;
      case WatchSort::size:
        if (a.size != b.size) return a.size > b.size;
        break;
      case WatchSort::name:
        if (a.kind != b.kind) return to_string(a.kind) < to_string(b.kind);
        if (a.name != b.name) return a.name < b.name;
        break;
    }
    if (a.resident != b.resident) return a.resident > b.resident;
    return a.size > b.size;
  };
  std::stable_sort(rows.begin(), rows.end(), less);
}

double resident_growth(const RegionTracker& tracker) {
  const RegionTracker::Totals& totals = tracker.totals();
  return growth_of(totals.rss_anon) + growth_of(totals.rss_shmem) + growth_of(totals.swap);
}

bool saw_growth(const RegionTracker& tracker) {
  const RegionTracker::Totals& totals = tracker.totals();
  constexpr auto resident = static_cast<double>(least_resident_growth);
  return resident_growth(tracker) >= resident || growth_of(totals.page_tables) >= resident ||
         growth_of(totals.rss_file) >= resident ||
         growth_of(tracker.mapped()) >= static_cast<double>(least_mapped_growth);
}

}  // namespace whomap
