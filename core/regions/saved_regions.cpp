// SPDX-License-Identifier: Apache-2.0
#include "core/regions/saved_regions.h"

#include <charconv>

#include "core/base/lines.h"

namespace whomap {
namespace {

/// "7f00-7f10 ..." -> the range; a field line of smaps has none.
std::optional<AddressRange> range_of(std::string_view line) {
  AddressRange range;
  const char* const end = line.data() + line.size();
  const auto [dash, problem] = std::from_chars(line.data(), end, range.start, 16);
  if (problem != std::errc{} || dash == end || *dash != '-') return std::nullopt;
  const auto [rest, problem2] = std::from_chars(dash + 1, end, range.end, 16);
  return problem2 == std::errc{} && rest != end && *rest == ' ' ? std::optional(range) : std::nullopt;
}

bool is_shared_memory(std::string_view name) {
  for (const std::string_view start : {"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"})
    if (name.starts_with(start)) return true;
  return false;
}

/// As /proc/PID/status counts them (MM_ANONPAGES, MM_FILEPAGES, MM_SHMEMPAGES in the kernel), but for files
/// on a tmpfs that has another name. Unknown where a region's sizes are.
MemoryTotals totals_of(const Snapshot& snapshot) {
  std::uint64_t anonymous = 0;
  std::uint64_t file = 0;
  std::uint64_t shared = 0;
  std::optional<std::uint64_t> swap = 0;
  for (const Region& region : snapshot.regions) {
    if (!region.rss || !region.anonymous || *region.anonymous > *region.rss) return {};
    anonymous += *region.anonymous;
    (is_shared_memory(region.vma.name) ? shared : file) += *region.rss - *region.anonymous;
    if (swap && region.swap)
      *swap += *region.swap;
    else
      swap.reset();
  }
  if (snapshot.regions.empty()) return {};
  return {anonymous, file, shared, swap, std::nullopt};
}

}  // namespace

std::vector<Snapshot> snapshots_from_text(std::string_view text) {
  std::vector<Snapshot> snapshots;
  std::string_view rest = text;
  const char* begin = text.data();
  std::uint64_t previous_start = 0;
  const auto add = [&](const char* end) {
    const std::string_view part(begin, static_cast<std::size_t>(end - begin));
    if (part.find_first_not_of("\r\n ") != std::string_view::npos) {
      snapshots.push_back(snapshot_from_text(part));
      snapshots.back().totals = totals_of(snapshots.back());
    }
    begin = end;
  };
  while (!rest.empty()) {
    const char* const line_start = rest.data();
    const auto range = range_of(next_line(rest));
    if (!range) continue;
    // A VMA that merged while the file was read comes again and overlaps the one before: that is no new
    // beginning.
    if (range->end <= previous_start) add(line_start);
    previous_start = range->start;
  }
  add(text.data() + text.size());
  return snapshots;
}

}  // namespace whomap
