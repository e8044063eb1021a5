// SPDX-License-Identifier: Apache-2.0
#include "core/regions/watch_view.h"

#include <algorithm>

#include "core/regions/watch_rows.h"

namespace whomap {
namespace {

/// At most this many rows are named as those that make up the growth.
constexpr std::uint64_t few = 3;

double growth_of(const Series& series) {
  return series.last() - series.first();
}

void find_leading(WatchView& view) {
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

}  // namespace

WatchView view_of(const RegionTracker& tracker, const WatchViewOptions& options) {
  const WatchWindow window(tracker, options.window_seconds);
  const RegionTracker::Totals& totals = tracker.totals();
  WatchView view;
  view.seconds = static_cast<double>(tracker.last_ns() - tracker.begin_ns()) / 1e9;
  view.last_ns = tracker.last_ns();
  view.regions = tracker.latest().regions.size();
  view.threads = tracker.threads();
  view.first_threads = tracker.first_threads();
  view.totals.rss_anon = window.shape_of_total(totals.rss_anon);
  view.totals.rss_file = window.shape_of_total(totals.rss_file);
  view.totals.rss_shmem = window.shape_of_total(totals.rss_shmem);
  view.totals.swap = window.shape_of_total(totals.swap);
  view.totals.page_tables = window.shape_of_total(totals.page_tables);
  view.totals.mapped = window.shape_of_size(tracker.mapped());
  view.totals.mapped_bytes = static_cast<std::uint64_t>(tracker.mapped().last());
  view.totals.rss_anon_bytes = totals.rss_anon.last();
  view.rows = watch_rows(tracker, window, options.recent_values);
  find_leading(view);
  sort_watch_rows(view.rows, options.sort);
  return view;
}

void sort_watch_rows(std::vector<WatchRow>& rows, WatchSort by) {
  const auto less = [&](const WatchRow& a, const WatchRow& b) {
    switch (by) {
      case WatchSort::rate:
        // Resident growth costs memory now; growth of mere addresses comes after it.
        if (a.shape_is_of_size != b.shape_is_of_size) {
          const WatchRow& resident = a.shape_is_of_size ? b : a;
          if (resident.shape.present_rate() > 0) return !a.shape_is_of_size;
        }
        if (a.shape.present_rate() != b.shape.present_rate())
          return a.shape.present_rate() > b.shape.present_rate();
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
