// SPDX-License-Identifier: Apache-2.0
#include "core/match/resident_parts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/regions/classes.h"

namespace whomap {
namespace {

std::string_view older_memory(const Region& region, RegionKind kind) {
  if (holds_file_pages(region)) return "pages of files, touched in mappings from before the trace";
  switch (kind) {
    case RegionKind::heap: return "in [heap], within what it was before the trace";
    case RegionKind::stack:
    case RegionKind::thread_stack: return "in stacks from before the trace";
    case RegionKind::glibc_arena: return "in malloc arenas from before the trace";
    case RegionKind::shared_memory:
    case RegionKind::memfd: return "in shared memory mapped before the trace";
    case RegionKind::file: return "written pages of private file mappings from before the trace";
    default: return "in anonymous memory mapped before the trace";
  }
}

/// Resident bytes in `ranges`, page by page; nullopt where the pages are not known.
std::optional<double> counted(const Snapshot& after, const RangeSet& ranges) {
  if (!after.pages) return std::nullopt;
  std::uint64_t looked_at = 0;
  std::uint64_t resident = 0;
  for (const AddressRange& range : ranges) {
    looked_at += overlap(after.pages->looked_at, range);
    resident += overlap(after.pages->resident, range);
  }
  return looked_at == total_size(ranges) ? std::optional(static_cast<double>(resident)) : std::nullopt;
}

RangeSet part_of(const RangeSet& fresh, AddressRange range) {
  const auto first =
      std::upper_bound(fresh.begin(), fresh.end(), range.start,
                       [](std::uint64_t wanted, const AddressRange& each) { return wanted < each.end; });
  RangeSet part;
  for (auto at = first; at != fresh.end() && at->start < range.end; ++at) part.push_back(common(*at, range));
  return part;
}

}  // namespace

std::optional<double> resident_before(const Snapshot& before, AddressRange range, std::size_t& cursor) {
  while (cursor < before.regions.size() && before.regions[cursor].vma.end <= range.start) ++cursor;
  double bytes = 0;
  for (std::size_t i = cursor; i < before.regions.size() && before.regions[i].vma.start < range.end; ++i) {
    const Region& region = before.regions[i];
    if (!region.rss) return std::nullopt;
    const double part = static_cast<double>(common(region.vma.range(), range).size());
    bytes += static_cast<double>(*region.rss) * part / static_cast<double>(region.vma.size());
  }
  return bytes;
}

ResidentChange resident_parts(const Snapshot& before, const Snapshot& after, const RangeSet& fresh,
                              double explained, std::int64_t total) {
  std::map<std::string_view, double> parts;
  double touched = 0;
  double in_new = 0;
  std::size_t cursor = 0;
  for (std::size_t i = 0; i < after.regions.size(); ++i) {
    const Region& region = after.regions[i];
    const auto was = resident_before(before, region.vma.range(), cursor);
    if (!region.rss || !was) return {};
    const double delta = static_cast<double>(*region.rss) - *was;
    const RangeSet new_part = part_of(fresh, region.vma.range());
    const double largest = static_cast<double>(total_size(new_part));
    const double here = counted(after, new_part).value_or(std::clamp(delta, 0.0, largest));
    in_new += here;
    if (delta == here) continue;
    parts[older_memory(region, kind_of(after, i))] += delta - here;
    if (!holds_file_pages(region)) touched += delta - here;
  }
  // What was resident in regions, or parts of regions, that are gone.
  const RangeSet still_there = mapped_addresses(after);
  double gone = 0;
  for (const Region& region : before.regions) {
    if (!region.rss) return {};
    const std::uint64_t kept = overlap(still_there, region.vma.range());
    gone += static_cast<double>(*region.rss) * static_cast<double>(region.vma.size() - kept) /
            static_cast<double>(region.vma.size());
  }
  parts["in new memory that captured calls mapped"] = explained;
  parts["in new memory that no captured call mapped"] = in_new - explained;
  parts["in memory that is no longer mapped"] = -gone;
  ResidentChange change;
  change.touched_older = static_cast<std::int64_t>(std::llround(touched));
  std::vector<ResidentPart>& result = change.parts;
  std::int64_t rest = total;
  for (const auto& [where, bytes] : parts) {
    const auto rounded = static_cast<std::int64_t>(std::llround(bytes));
    if (rounded == 0) continue;
    result.push_back({std::string(where), rounded});
    rest -= rounded;
  }
  if (rest != 0) result.push_back({"counted by the kernel at another moment, or shared zero pages", rest});
  std::sort(result.begin(), result.end(),
            [](const ResidentPart& left, const ResidentPart& right) { return left.bytes > right.bytes; });
  return change;
}

}  // namespace whomap
