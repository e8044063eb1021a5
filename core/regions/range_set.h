// SPDX-License-Identifier: Apache-2.0
// Sets of addresses as sorted, disjoint ranges: the arithmetic that growth is judged with.
#pragma once

#include <cstdint>
#include <vector>

#include "core/process/vma.h"

namespace whomap {

/// Sorted by start, none empty, no two of them overlapping or touching.
using RangeSet = std::vector<AddressRange>;

/// Any ranges, in any order, as a set. Empty and inverted ones are left out.
RangeSet make_range_set(std::vector<AddressRange> ranges);

RangeSet subtract(const RangeSet& from, const RangeSet& what);
RangeSet intersect(const RangeSet& left, const RangeSet& right);

/// Bytes of the set.
std::uint64_t total_size(const RangeSet& ranges);
/// Bytes that `range` and the set have in common. O(log n + ranges touched).
std::uint64_t overlap(const RangeSet& ranges, AddressRange range);

/// The part that two ranges have in common; empty (size 0) when there is none.
AddressRange common(AddressRange left, AddressRange right);

}  // namespace whomap
