// SPDX-License-Identifier: Apache-2.0
// The rows of a watch: single regions where they account for growth or are few, the others together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/regions/watch_view.h"

namespace whomap {

/// Shapes of what a tracker holds, in the last part of the time.
class WatchWindow {
 public:
  /// `seconds` up to the last reading; 0: everything.
  WatchWindow(const RegionTracker& tracker, double seconds);

  [[nodiscard]] std::uint64_t from_ns() const { return from_ns_; }
  [[nodiscard]] std::uint64_t to_ns() const { return tracker_.last_ns(); }

  /// Each up to the last of the readings that it comes from: what came after that was not seen, and is not
  /// flat. Totals come with every reading, sizes with those of maps, resident sizes with those of smaps.
  [[nodiscard]] GrowthShape shape_of_total(const Series& series) const;
  [[nodiscard]] GrowthShape shape_of_size(const Series& series) const;
  [[nodiscard]] GrowthShape shape_of_resident(const Series& series) const;

 private:
  [[nodiscard]] GrowthShape shape(const Series& series, std::uint64_t to_ns, std::uint64_t readings) const;

  const RegionTracker& tracker_;
  std::uint64_t from_ns_;
};

/// Not sorted. `recent_values`: length of WatchRow::recent.
std::vector<WatchRow> watch_rows(const RegionTracker& tracker, const WatchWindow& window,
                                 std::size_t recent_values);

}  // namespace whomap
