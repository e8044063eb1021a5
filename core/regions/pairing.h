// SPDX-License-Identifier: Apache-2.0
// Which region of one snapshot became which of the next: by the addresses they have in common, since the
// kernel merges, splits and moves regions, and their starts and names say little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/regions/snapshot.h"

namespace whomap {

inline constexpr std::size_t no_region = std::numeric_limits<std::size_t>::max();

/// Where a region of the later snapshot comes from.
struct RegionOrigin {
  /// Region of the earlier snapshot that it continues: the one with most addresses in common, or the one that
  /// moved here. no_region: none of them, it is new or was split off.
  std::size_t continues = no_region;
  std::size_t largest = no_region;  ///< the one with most addresses in common, continued or not
  std::uint32_t parts = 0;          ///< regions of the earlier snapshot with addresses in it
  std::uint64_t kept = 0;           ///< bytes of it that were mapped before
  std::uint64_t new_below = 0;      ///< newly mapped bytes below the first kept address
  std::uint64_t new_above = 0;      ///< and above the last
  std::uint64_t protection = 0;     ///< kept bytes whose permissions changed
  std::uint64_t made_usable = 0;    ///< of those, bytes that had no permission and have one
  std::uint64_t replaced = 0;  ///< kept addresses that map something else now (another file, another name)
  double resident_before = 0;  ///< resident bytes that the kept addresses had; see compare_regions
  bool moved = false;          ///< by mremap: gone there, and here of the same kind and size
};

struct RegionChanges {
  std::vector<RegionOrigin> origins;  ///< one per region of the later snapshot
  /// One per region of the earlier snapshot: where it went (most of its addresses, or moved); no_region:
  /// nothing of it is left.
  std::vector<std::size_t> heirs;
  std::vector<std::uint64_t> unmapped;  ///< one per region of the earlier snapshot: bytes no longer mapped
};

/// `resident` has the resident bytes of each region of `before`; where a region was cut they are taken to be
/// spread evenly. Takes time in proportion to the number of regions.
RegionChanges compare_regions(const Snapshot& before, const std::vector<double>& resident,
                              const Snapshot& after);

/// The two may be one mapping: the same object (file, memory of a name), whatever the permissions.
bool same_object(const Vma& left, const Vma& right);

}  // namespace whomap
