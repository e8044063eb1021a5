// SPDX-License-Identifier: Apache-2.0
// Where resident memory grew or shrank, whether or not a call was made for it.
#pragma once

#include <optional>
#include <vector>

#include "core/match/match.h"
#include "core/regions/range_set.h"

namespace whomap {

/// Bytes of `range` that were resident in `before`; regions that lie in it only partly give their share.
/// `cursor` goes with calls of ascending ranges. nullopt when a region's resident size is unknown.
std::optional<double> resident_before(const Snapshot& before, AddressRange range, std::size_t& cursor);

struct ResidentChange {
  std::vector<ResidentPart> parts;
  std::int64_t touched_older = 0;  ///< of them, in memory mapped before that is not a file's
};

/// The parts of `total` (the change of RssAnon + RssFile + RssShmem), which they add up to: what the kernel
/// counted at another moment or in another way is a part too. `fresh`: the newly mapped or opened addresses;
/// `explained`: bytes of them that are resident and belong to a stack. Empty when the regions' resident sizes
/// are unknown.
ResidentChange resident_parts(const Snapshot& before, const Snapshot& after, const RangeSet& fresh,
                              double explained, std::int64_t total);

}  // namespace whomap
