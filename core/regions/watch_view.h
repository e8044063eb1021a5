// SPDX-License-Identifier: Apache-2.0
// What watching has found so far, as rows and totals: core/report gives it a shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/regions/growth_shape.h"
#include "core/regions/tracker.h"

namespace whomap {

enum class WatchSort { rate, resident, size, name };

struct WatchRow {
  RegionKind kind = RegionKind::anonymous;
  std::string name;                   ///< of the file or memory, as the kernel has it; may be empty
  std::uint64_t count = 1;            ///< regions in this row
  std::uint64_t names = 1;            ///< of how many names they are; above 1 `name` is empty
  std::optional<AddressRange> range;  ///< of a single region
  std::string evidence;  ///< how one can tell the class; of the largest region when there are several
  std::vector<std::string> traits;  ///< what else is true of a single region
  std::uint32_t changes = 0;        ///< RegionChange bits of a single region
  std::uint64_t first_seen_ns = 0;
  std::uint64_t size = 0;
  double resident = 0;     ///< bytes resident or in swap
  double size_growth = 0;  ///< bytes since the watch began, or since it was first seen
  double resident_growth = 0;
  GrowthShape shape;  ///< of resident_growth; of size_growth where nothing of it is resident
  bool shape_is_of_size = false;
  std::vector<double> recent;  ///< what `shape` is of, over the shown window, oldest first
};

struct WatchTotals {
  GrowthShape rss_anon, rss_file, rss_shmem, swap, page_tables, mapped;
  std::uint64_t mapped_bytes = 0;
  double rss_anon_bytes = 0;
};

struct WatchView {
  double seconds = 0;         ///< since the watch began
  std::uint64_t last_ns = 0;  ///< of the last reading, CLOCK_MONOTONIC
  WatchTotals totals;
  std::vector<WatchRow> rows;  ///< sorted
  std::uint64_t regions = 0;
  std::optional<std::uint64_t> threads, first_threads;
  /// Rows that make up the growth: the fewest that have nine tenths of it, at most three; and their share.
  std::uint64_t leading_rows = 0;
  std::uint64_t leading_regions = 0;
  double leading_share = 0;
};

struct WatchViewOptions {
  WatchSort sort = WatchSort::rate;
  double window_seconds = 0;      ///< rates and shapes are of the last so many seconds; 0: of everything
  std::size_t recent_values = 0;  ///< length of WatchRow::recent
};

/// Regions are shown one by one where they account for the growth of their group, or are few; the others of a
/// kind and name are one row, and where a kind has very many names, the small ones are.
WatchView view_of(const RegionTracker& tracker, const WatchViewOptions& options);

void sort_watch_rows(std::vector<WatchRow>& rows, WatchSort by);

/// Bytes by which the process grew while it was watched: anonymous and shared memory, resident or in swap.
double resident_growth(const RegionTracker& tracker);

/// Anything grew: resident memory, page tables or files' pages by least_resident_growth, or mapped addresses
/// by least_mapped_growth.
bool saw_growth(const RegionTracker& tracker);

}  // namespace whomap
