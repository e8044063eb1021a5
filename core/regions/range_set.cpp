// SPDX-License-Identifier: Apache-2.0
#include "core/regions/range_set.h"

#include <algorithm>

namespace whomap {

AddressRange common(AddressRange left, AddressRange right) {
  const std::uint64_t start = std::max(left.start, right.start);
  const std::uint64_t end = std::min(left.end, right.end);
  return start < end ? AddressRange{start, end} : AddressRange{start, start};
}

RangeSet make_range_set(std::vector<AddressRange> ranges) {
  std::erase_if(ranges, [](const AddressRange& range) { return range.start >= range.end; });
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& left, const AddressRange& right) { return left.start < right.start; });
  RangeSet set;
  for (const AddressRange& range : ranges) {
    if (!set.empty() && range.start <= set.back().end)
      set.back().end = std::max(set.back().end, range.end);
    else
      set.push_back(range);
  }
  return set;
}

RangeSet subtract(const RangeSet& from, const RangeSet& what) {
  RangeSet left;
  std::size_t next = 0;
  for (AddressRange range : from) {
    while (next < what.size() && what[next].end <= range.start) ++next;
    // `what[i]` may reach into the following range too, so `next` stays on it.
    for (std::size_t i = next; i < what.size() && what[i].start < range.end; ++i) {
      if (what[i].start > range.start) left.push_back({range.start, what[i].start});
      range.start = std::min(what[i].end, range.end);
      if (range.start == range.end) break;
    }
    if (range.start < range.end) left.push_back(range);
  }
  return left;
}

RangeSet intersect(const RangeSet& left, const RangeSet& right) {
  RangeSet both;
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    const AddressRange part = common(left[i], right[j]);
    if (part.size() != 0) both.push_back(part);
    if (left[i].end < right[j].end)
      ++i;
    else
      ++j;
  }
  return both;
}

std::uint64_t total_size(const RangeSet& ranges) {
  std::uint64_t bytes = 0;
  for (const AddressRange& range : ranges) bytes += range.size();
  return bytes;
}

std::uint64_t overlap(const RangeSet& ranges, AddressRange range) {
  auto at =
      std::upper_bound(ranges.begin(), ranges.end(), range.start,
                       [](std::uint64_t address, const AddressRange& each) { return address < each.end; });
  std::uint64_t bytes = 0;
  for (; at != ranges.end() && at->start < range.end; ++at) bytes += common(*at, range).size();
  return bytes;
}

}  // namespace whomap
