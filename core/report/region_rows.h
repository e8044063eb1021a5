// SPDX-License-Identifier: Apache-2.0
// Regions that say the same, as one row.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/match/match.h"

namespace whomap {

struct RegionRow {
  const RegionAnswer* first = nullptr;
  std::uint64_t count = 0;  ///< regions of the same class and name that grew by the same size
  /// Of all of them.
  std::int64_t size_delta = 0;
  std::optional<std::int64_t> rss_delta = 0;
  std::uint64_t explained_bytes = 0;
};

/// In the order of `regions`, which they point into. What a watch saw of a region keeps it apart.
std::vector<RegionRow> region_rows(const std::vector<RegionAnswer>& regions);

}  // namespace whomap
