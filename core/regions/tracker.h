// SPDX-License-Identifier: Apache-2.0
// The regions of a process over time: follows each through merges, splits and moves, and keeps its history.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/regions/classes.h"
#include "core/regions/pairing.h"
#include "core/regions/series.h"
#include "core/regions/snapshot.h"

namespace whomap {

/// What happened to a region, as bits of RegionTrack::changes.
enum RegionChange : std::uint32_t {
  grew_below = 1U << 0,  ///< newly mapped addresses below it that the kernel merged into it
  grew_above = 1U << 1,
  shrank = 1U << 2,
  merged = 1U << 3,       ///< other regions that existed before became part of it
  split = 1U << 4,        ///< parts of it became regions of their own, or it is such a part
  moved = 1U << 5,        ///< by mremap
  reprotected = 1U << 6,  ///< permissions of its addresses changed
  opened = 1U << 7,       ///< reserved addresses (PROT_NONE) became usable
  replaced = 1U << 8,     ///< its addresses map something else than before
};

inline constexpr std::uint32_t no_group = ~std::uint32_t{0};

/// One region through time. Bytes; "resident" is what smaps counts as Rss, Swap and hugetlb pages together.
struct RegionTrack {
  std::uint64_t first_seen_ns = 0;
  bool born = false;  ///< appeared while watching
  bool live = false;
  RegionKind kind = RegionKind::anonymous;
  std::uint32_t group = no_group;  ///< index in RegionTracker::groups()
  std::uint32_t changes = 0;       ///< RegionChange bits
  Series start, size, resident;
  /// Growth since it was first seen: what was mapped or became resident, and not what merging brought in, so
  /// that a byte is never counted twice. Regions that merged into it brought their growth with them.
  Series mapped_growth, resident_growth;
};

/// All regions of one kind and name. A shared object that is mapped more than once counts once, by its Pss.
struct RegionGroup {
  RegionKind kind = RegionKind::anonymous;
  std::string name;  ///< empty for kinds whose regions have none, or a different one each
  std::uint64_t count = 0, size = 0;
  double resident = 0;
  std::uint64_t first_seen_ns = 0;
  Series size_series, resident_series;
};

class RegionTracker {
 public:
  /// `snapshot` is later than the last one. Where it has no resident sizes, those of before are carried on.
  void add(Snapshot snapshot);
  /// A reading of /proc/PID/status alone.
  void add_totals(std::uint64_t time_ns, const MemoryTotals& totals, std::optional<std::uint64_t> threads);

  /// It is known that no region has changed since the last reading of them; `resident`: nor what is resident.
  void add_unchanged(std::uint64_t time_ns, bool resident);

  /// The last snapshot, its unknown sizes filled with the last known ones of unchanged regions.
  [[nodiscard]] const Snapshot& latest() const { return latest_; }
  [[nodiscard]] std::uint64_t begin_ns() const { return begin_ns_; }
  [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }
  [[nodiscard]] std::uint64_t readings() const { return readings_; }  ///< of status, at least
  /// Readings of maps or smaps, and when the last one was.
  [[nodiscard]] std::uint64_t region_readings() const { return region_readings_; }
  [[nodiscard]] std::uint64_t regions_ns() const { return regions_ns_; }
  /// Of those, readings that knew what is resident.
  [[nodiscard]] std::uint64_t resident_readings() const { return resident_readings_; }
  [[nodiscard]] std::uint64_t resident_ns() const { return resident_ns_; }
  [[nodiscard]] const std::vector<RegionTrack>& tracks() const { return tracks_; }
  /// Index in tracks() of the region latest().regions[index].
  [[nodiscard]] std::uint32_t track_of(std::size_t index) const { return track_of_[index]; }
  [[nodiscard]] double resident_of(std::size_t index) const { return resident_[index]; }
  [[nodiscard]] const std::vector<RegionGroup>& groups() const { return groups_; }
  /// Bytes mapped in all, over time.
  [[nodiscard]] const Series& mapped() const { return mapped_; }

  struct Totals {
    Series rss_anon, rss_file, rss_shmem, swap, page_tables;
  };
  [[nodiscard]] const Totals& totals() const { return totals_; }
  [[nodiscard]] std::optional<std::uint64_t> threads() const { return threads_; }
  [[nodiscard]] std::optional<std::uint64_t> first_threads() const { return first_threads_; }

 private:
  std::uint32_t new_track(std::uint64_t time_ns, bool born);
  void absorb(RegionTrack& into, RegionTrack& gone);
  void carry_over(Snapshot& snapshot, const RegionChanges& changes) const;
  void follow(const Snapshot& snapshot, const RegionChanges& changes, const std::vector<double>& resident);
  void note_changes(RegionTrack& track, const RegionOrigin& origin) const;
  void group_regions();
  std::uint32_t group_of(RegionKind kind, std::string_view name, std::uint64_t time_ns);
  void limit_memory();

  Snapshot latest_;
  std::vector<double> resident_;  ///< by index in latest_.regions
  std::vector<std::uint32_t> track_of_;
  std::vector<RegionTrack> tracks_;
  std::vector<std::uint32_t> free_tracks_;
  std::vector<RegionGroup> groups_;
  std::unordered_map<std::string, std::uint32_t> group_ids_;
  Series mapped_;
  Totals totals_;
  std::optional<std::uint64_t> threads_, first_threads_;
  std::uint64_t begin_ns_ = 0, last_ns_ = 0, readings_ = 0, snapshots_ = 0;
  std::uint64_t region_readings_ = 0, regions_ns_ = 0, resident_readings_ = 0, resident_ns_ = 0;
  std::size_t most_points_ = 256;
};

}  // namespace whomap
