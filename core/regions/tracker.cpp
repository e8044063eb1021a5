// SPDX-License-Identifier: Apache-2.0
#include "core/regions/tracker.h"

#include <algorithm>

#include <fmt/format.h>

namespace whomap {
namespace {

/// Resident bytes of a region; nullopt when smaps was not read, or the region changed while it was.
std::optional<double> resident_bytes(const Region& region) {
  if (!region.rss) return std::nullopt;
  return static_cast<double>(*region.rss + region.swap.value_or(0) + region.hugetlb.value_or(0));
}

/// Regions of these kinds are told apart by name; the others have none, or one of their own each.
bool grouped_by_name(RegionKind kind) {
  switch (kind) {
    case RegionKind::named:
    case RegionKind::file:
    case RegionKind::shared_memory:
    case RegionKind::memfd:
    case RegionKind::device:
    case RegionKind::huge_pages: return true;
    default: return false;
  }
}

/// A file that is deleted while it is watched stays in its group.
std::string_view group_name(const Region& region) {
  std::string_view name = region.vma.name;
  if (region.deleted == Deleted::yes) name.remove_suffix(std::string_view(" (deleted)").size());
  return name;
}

double value_of(std::optional<std::uint64_t> bytes, const Series& series) {
  return bytes ? static_cast<double>(*bytes) : series.last();
}

}  // namespace

std::uint32_t RegionTracker::new_track(std::uint64_t time_ns, bool born) {
  std::uint32_t id = 0;
  if (free_tracks_.empty()) {
    id = static_cast<std::uint32_t>(tracks_.size());
    tracks_.emplace_back();
  } else {
    id = free_tracks_.back();
    free_tracks_.pop_back();
    tracks_[id] = {};
  }
  tracks_[id].first_seen_ns = time_ns;
  tracks_[id].born = born;
  tracks_[id].live = true;
  return id;
}

/// The merged region's past is that of its parts together.
void RegionTracker::absorb(RegionTrack& into, RegionTrack& gone) {
  into.mapped_growth.merge(gone.mapped_growth);
  into.resident_growth.merge(gone.resident_growth);
  into.first_seen_ns = std::min(into.first_seen_ns, gone.first_seen_ns);
  into.changes |= gone.changes | RegionChange::merged;
}

void RegionTracker::note_changes(RegionTrack& track, const RegionOrigin& origin) const {
  const auto set = [&](bool holds, RegionChange change) {
    if (holds) track.changes |= change;
  };
  set(origin.parts != 0 && origin.new_below != 0, RegionChange::grew_below);
  set(origin.parts != 0 && origin.new_above != 0, RegionChange::grew_above);
  set(origin.moved, RegionChange::moved);
  set(origin.protection != 0, RegionChange::reprotected);
  set(origin.made_usable != 0, RegionChange::opened);
  set(origin.replaced != 0, RegionChange::replaced);
}

/// What a reading of maps cannot know is taken from the last reading of smaps where nothing changed.
void RegionTracker::carry_over(Snapshot& snapshot, const RegionChanges& changes) const {
  if (!snapshot.stacks.looked) snapshot.stacks = latest_.stacks;
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i) {
    Region& region = snapshot.regions[i];
    const std::size_t from = changes.origins[i].continues;
    if (region.rss || from == no_region) continue;
    const Region& was = latest_.regions[from];
    if (was.vma == region.vma)
      region = was;
    else if (region.vm_flags.empty())
      region.vm_flags = was.vm_flags;
  }
}

void RegionTracker::follow(const Snapshot& snapshot, const RegionChanges& changes,
                           const std::vector<double>& resident) {
  const std::uint64_t now = snapshot.time_ns;
  std::vector<std::uint32_t> next(snapshot.regions.size());
  // What went with the addresses that were unmapped, by the region that goes on.
  std::vector<double> lost_bytes(snapshot.regions.size()), lost_resident(snapshot.regions.size());
  for (std::size_t j = 0; j < changes.heirs.size(); ++j) {
    const std::size_t heir = changes.heirs[j];
    if (heir == no_region || changes.unmapped[j] == 0) continue;
    const auto bytes = static_cast<double>(changes.unmapped[j]);
    lost_bytes[heir] += bytes;
    lost_resident[heir] += resident_[j] * bytes / static_cast<double>(latest_.regions[j].vma.size());
  }
  std::vector<bool> goes_on(latest_.regions.size());
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i) {
    const RegionOrigin& origin = changes.origins[i];
    const bool continues = origin.continues != no_region;
    const bool fresh = origin.parts == 0 && !continues;
    if (continues) goes_on[origin.continues] = true;
    next[i] = continues ? track_of_[origin.continues] : new_track(now, fresh);
    RegionTrack& track = tracks_[next[i]];
    note_changes(track, origin);
    if (!continues && !fresh && origin.largest != no_region) {
      track.changes |= RegionChange::split;
      tracks_[track_of_[origin.largest]].changes |= RegionChange::split;
    }
    if (lost_bytes[i] > 0) track.changes |= RegionChange::shrank;
    if (!continues) {  // growth starts from nothing at the last reading, where it was not there
      track.mapped_growth.add(regions_ns_, 0);
      track.resident_growth.add(regions_ns_, 0);
    }
    const auto size = static_cast<double>(snapshot.regions[i].vma.size());
    track.mapped_growth.add(
        now, track.mapped_growth.last() + size - static_cast<double>(origin.kept) - lost_bytes[i],
        most_points_);
    track.resident_growth.add(
        now, track.resident_growth.last() + resident[i] - origin.resident_before - lost_resident[i],
        most_points_);
  }
  for (std::size_t j = 0; j < latest_.regions.size(); ++j) {
    if (goes_on[j]) continue;
    RegionTrack& gone = tracks_[track_of_[j]];
    if (changes.heirs[j] != no_region) absorb(tracks_[next[changes.heirs[j]]], gone);
    gone.live = false;
  }
  for (std::size_t j = 0; j < latest_.regions.size(); ++j)
    if (!goes_on[j]) {
      tracks_[track_of_[j]] = {};
      free_tracks_.push_back(track_of_[j]);
    }
  track_of_ = std::move(next);
}

void RegionTracker::add(Snapshot snapshot) {
  const std::uint64_t now = snapshot.time_ns;
  add_totals(now, snapshot.totals, snapshot.threads);
  std::vector<double> resident(snapshot.regions.size());
  if (region_readings_ == 0) {
    for (std::size_t i = 0; i < snapshot.regions.size(); ++i) {
      resident[i] = resident_bytes(snapshot.regions[i]).value_or(0);
      const std::uint32_t id = new_track(now, false);
      track_of_.push_back(id);
      tracks_[id].mapped_growth.add(now, 0);
      tracks_[id].resident_growth.add(now, 0);
    }
  } else {
    const RegionChanges changes = compare_regions(latest_, resident_, snapshot);
    carry_over(snapshot, changes);
    for (std::size_t i = 0; i < snapshot.regions.size(); ++i)
      resident[i] = resident_bytes(snapshot.regions[i]).value_or(changes.origins[i].resident_before);
    follow(snapshot, changes, resident);
  }
  add_unchanged(now, snapshot.without_smaps.empty());
  latest_ = std::move(snapshot);
  resident_ = std::move(resident);
  double mapped = 0;
  for (std::size_t i = 0; i < latest_.regions.size(); ++i) {
    RegionTrack& track = tracks_[track_of_[i]];
    const Vma& vma = latest_.regions[i].vma;
    mapped += static_cast<double>(vma.size());
    track.start.add(now, static_cast<double>(vma.start), 32);
    track.size.add(now, static_cast<double>(vma.size()), most_points_);
    track.resident.add(now, resident_[i], most_points_);
  }
  mapped_.add(now, mapped);
  group_regions();
  constexpr std::uint64_t now_and_then = 64;
  if (++snapshots_ % now_and_then == 0) limit_memory();
}

void RegionTracker::add_unchanged(std::uint64_t time_ns, bool resident) {
  ++region_readings_;
  regions_ns_ = time_ns;
  if (!resident) return;
  ++resident_readings_;
  resident_ns_ = time_ns;
}

void RegionTracker::add_totals(std::uint64_t time_ns, const MemoryTotals& totals,
                               std::optional<std::uint64_t> threads) {
  totals_.rss_anon.add(time_ns, value_of(totals.rss_anon, totals_.rss_anon));
  totals_.rss_file.add(time_ns, value_of(totals.rss_file, totals_.rss_file));
  totals_.rss_shmem.add(time_ns, value_of(totals.rss_shmem, totals_.rss_shmem));
  totals_.swap.add(time_ns, value_of(totals.swap, totals_.swap));
  totals_.page_tables.add(time_ns, value_of(totals.page_tables, totals_.page_tables));
  if (threads) threads_ = threads;
  if (!first_threads_) first_threads_ = threads;
  if (begin_ns_ == 0) begin_ns_ = time_ns;
  last_ns_ = time_ns;
  ++readings_;
}

std::uint32_t RegionTracker::group_of(RegionKind kind, std::string_view name, std::uint64_t time_ns) {
  const bool by_name = grouped_by_name(kind);
  std::string key = fmt::format("{} {}", static_cast<int>(kind), by_name ? name : std::string_view());
  const auto [at, fresh] = group_ids_.try_emplace(std::move(key), static_cast<std::uint32_t>(groups_.size()));
  if (fresh) {
    RegionGroup group;
    group.kind = kind;
    if (by_name) group.name = name;
    group.first_seen_ns = time_ns;
    // What was not there a reading ago grew from nothing.
    if (region_readings_ > 1) {
      group.size_series.add(begin_ns_, 0);
      group.resident_series.add(begin_ns_, 0);
    }
    groups_.push_back(std::move(group));
  }
  return at->second;
}

void RegionTracker::group_regions() {
  for (RegionGroup& group : groups_) {
    group.count = group.size = 0;
    group.resident = 0;
  }
  std::unordered_map<std::uint64_t, std::uint32_t> mappings_of;  // of shared objects, by inode
  for (const Region& region : latest_.regions)
    if (region.vma.shared && region.vma.inode != 0) ++mappings_of[region.vma.inode];
  for (std::size_t i = 0; i < latest_.regions.size(); ++i) {
    const Region& region = latest_.regions[i];
    RegionTrack& track = tracks_[track_of_[i]];
    const RegionKind kind = kind_of(latest_, i);
    const bool known = track.group != no_group && track.kind == kind &&
                       (!grouped_by_name(kind) || groups_[track.group].name == group_name(region));
    if (!known) track.group = group_of(kind, group_name(region), latest_.time_ns);
    track.kind = kind;
    RegionGroup& group = groups_[track.group];
    ++group.count;
    group.size += region.vma.size();
    const bool several = region.vma.shared && region.vma.inode != 0 && mappings_of[region.vma.inode] > 1;
    group.resident +=
        several && region.pss ? static_cast<double>(*region.pss + region.swap.value_or(0)) : resident_[i];
  }
  for (RegionGroup& group : groups_) {
    group.size_series.add(latest_.time_ns, static_cast<double>(group.size));
    group.resident_series.add(latest_.time_ns, group.resident);
  }
}

/// A process with 100,000 regions that all change has a coarser history of each. Groups whose regions are
/// gone are forgotten when there are very many: a program may map a new file name every second.
void RegionTracker::limit_memory() {
  std::size_t points = 0;
  for (const RegionTrack& track : tracks_)
    points += track.size.points().size() + track.resident.points().size() +
              track.mapped_growth.points().size() + track.resident_growth.points().size();
  constexpr std::size_t most_in_all = 4'000'000;  // 64 MB
  constexpr std::size_t fewest = 16;
  if (points > most_in_all) most_points_ = std::max(fewest, most_points_ / 2);

  constexpr std::size_t most_groups = 8192;
  if (groups_.size() <= most_groups) return;
  std::vector<RegionGroup> left;
  group_ids_.clear();
  for (RegionGroup& group : groups_)
    if (group.count != 0) {
      group_ids_.emplace(fmt::format("{} {}", static_cast<int>(group.kind), group.name),
                         static_cast<std::uint32_t>(left.size()));
      left.push_back(std::move(group));
    }
  groups_ = std::move(left);
  for (std::size_t i = 0; i < latest_.regions.size(); ++i)
    tracks_[track_of_[i]].group =
        group_of(tracks_[track_of_[i]].kind, group_name(latest_.regions[i]), last_ns_);
}

}  // namespace whomap
