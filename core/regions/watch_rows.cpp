// SPDX-License-Identifier: Apache-2.0
#include "core/regions/watch_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace whomap {
namespace {

/// A group of no more regions than this shows each of them; no more than this are shown apart for their
/// growth.
constexpr std::size_t few = 3;
/// A kind with more names than this shows the largest, and the others as one row.
constexpr std::size_t many_names = 12;

double growth_of(const Series& series) {
  return series.last() - series.first();
}

struct Grown {
  double bytes = 0;
  std::size_t index = 0;
};

/// Those that account for the growth of all: up to `few` that have a quarter of it each. Where all grow by a
/// little, or come and go, it is none of them.
std::vector<std::size_t> leaders_of(std::vector<Grown> grown, double growth) {
  std::vector<std::size_t> leaders;
  if (growth < least_shape_change) return leaders;
  std::erase_if(grown,
                [&](const Grown& each) { return each.bytes < growth / 4 || each.bytes > growth * 1.25; });
  const std::size_t count = std::min(grown.size(), few);
  std::partial_sort(grown.begin(), grown.begin() + static_cast<std::ptrdiff_t>(count), grown.end(),
                    [](const Grown& a, const Grown& b) { return a.bytes > b.bytes; });
  for (std::size_t i = 0; i < count; ++i) leaders.push_back(grown[i].index);
  return leaders;
}

class RowMaker {
 public:
  RowMaker(const RegionTracker& tracker, const WatchWindow& window, std::size_t recent_values)
      : tracker_(tracker),
        window_(window),
        recent_values_(recent_values),
        groups_(tracker.groups()),
        members_(groups_.size()) {
    for (std::size_t i = 0; i < tracker_.latest().regions.size(); ++i) members_[track(i).group].push_back(i);
  }

  std::vector<WatchRow> make() {
    std::map<RegionKind, std::vector<std::size_t>> by_kind;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!members_[g].empty()) by_kind[groups_[g].kind].push_back(g);
    for (auto& [kind, groups] : by_kind) {
      const std::vector<std::size_t> others =
          groups.size() > many_names ? take_others(groups) : std::vector<std::size_t>{};
      for (const std::size_t g : groups) add_group(g);
      if (!others.empty()) rows_.push_back(row_of_groups(others));
    }
    return std::move(rows_);
  }

 private:
  [[nodiscard]] const RegionTrack& track(std::size_t region) const {
    return tracker_.tracks()[tracker_.track_of(region)];
  }

  /// Takes those groups of a kind out that are neither among the largest nor account for its growth.
  [[nodiscard]] std::vector<std::size_t> take_others(std::vector<std::size_t>& groups) const {
    double resident = 0, size = 0;
    for (const std::size_t g : groups) {
      resident += growth_of(groups_[g].resident_series);
      size += growth_of(groups_[g].size_series);
    }
    const bool by_size = resident < least_shape_change;
    std::vector<Grown> grown;
    for (const std::size_t g : groups)
      grown.push_back({growth_of(by_size ? groups_[g].size_series : groups_[g].resident_series), g});
    const std::vector<std::size_t> leaders = leaders_of(std::move(grown), by_size ? size : resident);
    std::set<std::size_t> apart(leaders.begin(), leaders.end());
    constexpr std::size_t largest = many_names - few - 1;
    std::partial_sort(
        groups.begin(), groups.begin() + largest, groups.end(),
        [&](std::size_t a, std::size_t b) { return groups_[a].resident > groups_[b].resident; });
    apart.insert(groups.begin(), groups.begin() + largest);
    std::vector<std::size_t> others;
    for (const std::size_t g : groups)
      if (apart.count(g) == 0) others.push_back(g);
    groups.assign(apart.begin(), apart.end());
    return others;
  }

  void add_group(std::size_t group) {
    std::vector<std::size_t>& members = members_[group];
    std::vector<std::size_t> single;
    if (is_one_object(members))
      single.clear();
    else if (members.size() <= few)
      single.swap(members);
    else
      single = take_leaders(groups_[group], members);
    for (const std::size_t i : single) rows_.push_back(row_of_region(i));
    if (!members.empty()) rows_.push_back(row_of_group(groups_[group], members, single));
  }

  /// A shared object that is mapped more than once: each mapping has all of it resident, and it counts once.
  [[nodiscard]] bool is_one_object(const std::vector<std::size_t>& members) const {
    const Vma& first = tracker_.latest().regions[members.front()].vma;
    return members.size() > 1 && first.shared && first.inode != 0 &&
           std::all_of(members.begin(), members.end(),
                       [&](std::size_t i) { return same_object(first, tracker_.latest().regions[i].vma); });
  }

  [[nodiscard]] std::vector<std::size_t> take_leaders(const RegionGroup& group,
                                                      std::vector<std::size_t>& members) const {
    const bool by_size = growth_of(group.resident_series) < least_shape_change;
    std::vector<Grown> grown;
    for (const std::size_t i : members)
      grown.push_back({growth_of(by_size ? track(i).mapped_growth : track(i).resident_growth), i});
    std::vector<std::size_t> leaders =
        leaders_of(std::move(grown), growth_of(by_size ? group.size_series : group.resident_series));
    std::erase_if(members, [&](std::size_t i) {
      return std::find(leaders.begin(), leaders.end(), i) != leaders.end();
    });
    return leaders;
  }

  [[nodiscard]] WatchRow row_of_region(std::size_t index) const {
    const Region& region = tracker_.latest().regions[index];
    WatchRow row;
    RegionClass kind = classify(tracker_.latest(), index);
    row.kind = kind.kind;
    row.evidence = std::move(kind.evidence);
    row.name = region.vma.name;
    row.range = region.vma.range();
    row.traits = traits(region);
    row.changes = track(index).changes;
    row.first_seen_ns = track(index).first_seen_ns;
    row.size = region.vma.size();
    row.resident = tracker_.resident_of(index);
    finish(row, track(index).mapped_growth, track(index).resident_growth);
    add_recent(row, row.shape_is_of_size ? track(index).size : track(index).resident);
    return row;
  }

  [[nodiscard]] std::string evidence_of_largest(const std::vector<std::size_t>& members) const {
    const auto largest = *std::max_element(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return tracker_.resident_of(a) < tracker_.resident_of(b);
    });
    return classify(tracker_.latest(), largest).evidence;
  }

  [[nodiscard]] WatchRow row_of_group(const RegionGroup& group, const std::vector<std::size_t>& members,
                                      const std::vector<std::size_t>& shown_apart) const {
    WatchRow row;
    row.kind = group.kind;
    row.name = group.name;
    row.count = members.size();
    row.evidence = evidence_of_largest(members);
    row.first_seen_ns = group.first_seen_ns;
    row.size = group.size;
    row.resident = group.resident;
    Series size = group.size_series, resident = group.resident_series;
    for (const std::size_t i : shown_apart) {
      row.size -= tracker_.latest().regions[i].vma.size();
      row.resident -= tracker_.resident_of(i);
      size.subtract(track(i).size);
      resident.subtract(track(i).resident);
    }
    finish(row, size, resident);
    add_recent(row, row.shape_is_of_size ? size : resident);
    return row;
  }

  [[nodiscard]] WatchRow row_of_groups(const std::vector<std::size_t>& groups) const {
    WatchRow row;
    row.kind = groups_[groups.front()].kind;
    row.count = 0;
    row.names = groups.size();
    row.first_seen_ns = groups_[groups.front()].first_seen_ns;
    Series size, resident;
    std::vector<std::size_t> largest;
    for (const std::size_t g : groups) {
      const RegionGroup& group = groups_[g];
      row.count += members_[g].size();
      row.first_seen_ns = std::min(row.first_seen_ns, group.first_seen_ns);
      row.size += group.size;
      row.resident += group.resident;
      size.merge(group.size_series);
      resident.merge(group.resident_series);
      largest.insert(largest.end(), members_[g].begin(), members_[g].end());
    }
    row.evidence = evidence_of_largest(largest);
    finish(row, size, resident);
    add_recent(row, row.shape_is_of_size ? size : resident);
    return row;
  }

  void finish(WatchRow& row, const Series& size, const Series& resident) const {
    row.size_growth = growth_of(size);
    row.resident_growth = growth_of(resident);
    row.shape = window_.shape_of_resident(resident);
    const GrowthShape of_size = window_.shape_of_size(size);
    row.shape_is_of_size =
        std::abs(row.shape.change) < least_shape_change && std::abs(of_size.change) >= least_shape_change;
    if (row.shape_is_of_size) row.shape = of_size;
  }

  void add_recent(WatchRow& row, const Series& series) const {
    if (recent_values_ < 2) return;
    for (const Sample& each : series.resample(window_.from_ns(), window_.to_ns(), recent_values_))
      row.recent.push_back(each.value);
  }

  const RegionTracker& tracker_;
  const WatchWindow& window_;
  std::size_t recent_values_;
  const std::vector<RegionGroup>& groups_;
  std::vector<std::vector<std::size_t>> members_;  ///< regions, by group
  std::vector<WatchRow> rows_;
};

}  // namespace

WatchWindow::WatchWindow(const RegionTracker& tracker, double seconds)
    : tracker_(tracker), from_ns_(tracker.begin_ns()) {
  const auto window = static_cast<std::uint64_t>(seconds * 1e9);
  if (window != 0 && to_ns() - from_ns_ > window) from_ns_ = to_ns() - window;
}

GrowthShape WatchWindow::shape(const Series& series, std::uint64_t to_ns, std::uint64_t readings) const {
  if (to_ns <= from_ns_) return {};
  const double part =
      static_cast<double>(to_ns - from_ns_) / static_cast<double>(to_ns - tracker_.begin_ns());
  return find_shape(series, from_ns_, to_ns,
                    static_cast<std::size_t>(std::ceil(static_cast<double>(readings) * part)));
}

GrowthShape WatchWindow::shape_of_total(const Series& series) const {
  return shape(series, tracker_.last_ns(), tracker_.readings());
}

GrowthShape WatchWindow::shape_of_size(const Series& series) const {
  return shape(series, tracker_.regions_ns(), tracker_.region_readings());
}

GrowthShape WatchWindow::shape_of_resident(const Series& series) const {
  return shape(series, tracker_.resident_ns(), tracker_.resident_readings());
}

std::vector<WatchRow> watch_rows(const RegionTracker& tracker, const WatchWindow& window,
                                 std::size_t recent_values) {
  return RowMaker(tracker, window, recent_values).make();
}

}  // namespace whomap
