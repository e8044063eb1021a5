// SPDX-License-Identifier: Apache-2.0
#include "core/regions/snapshot.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/process/own_memory.h"
#include "core/process/page_map.h"
#include "core/process/proc_error.h"
#include "core/regions/range_set.h"
#include "core/regions/smaps.h"

namespace whomap {
namespace {

std::optional<std::uint64_t> sum(std::optional<std::uint64_t> left, std::optional<std::uint64_t> right) {
  if (!left && !right) return std::nullopt;
  return left.value_or(0) + right.value_or(0);
}

void fill(Region& region, SmapsEntry& entry) {
  region.rss = entry.get(SmapsField::rss);
  region.pss = entry.get(SmapsField::pss);
  region.anonymous = entry.get(SmapsField::anonymous);
  region.swap = entry.get(SmapsField::swap);
  region.lazy_free = entry.get(SmapsField::lazy_free);
  region.anon_huge_pages = entry.get(SmapsField::anon_huge_pages);
  region.hugetlb = sum(entry.get(SmapsField::shared_hugetlb), entry.get(SmapsField::private_hugetlb));
  region.vm_flags = std::move(entry.vm_flags);
  region.unknown = std::move(entry.unknown);
  region.vma = std::move(entry.vma);
  region.deleted = deleted_by_name(region.vma);
}

/// The kernel hands the file out in pieces and drops the lock between them. A VMA that merged with one
/// already printed is printed again, whole: the later line is the truth, the earlier one is shortened to
/// what the later one leaves of it, and what was resident there is then no longer known.
void add_region(Snapshot& snapshot, SmapsEntry& entry) {
  std::vector<Region>& regions = snapshot.regions;
  while (!regions.empty() && regions.back().vma.end > entry.vma.start) {
    ++snapshot.overlaps;
    if (regions.back().vma.start >= entry.vma.start) {
      regions.pop_back();
      continue;
    }
    Region& before = regions.back();
    before.vma.end = entry.vma.start;
    before.rss = before.pss = before.anonymous = before.swap = std::nullopt;
    before.lazy_free = before.anon_huge_pages = before.hugetlb = std::nullopt;
  }
  fill(regions.emplace_back(), entry);
}

/// Parses into `snapshot` what `read` hands it in pieces.
template <class Read>
Result<void> add_regions(Snapshot& snapshot, Read&& read) {
  SmapsParser parser([&](SmapsEntry& entry) { add_region(snapshot, entry); });
  auto done = read([&](std::string_view piece) { parser.feed(piece); });
  parser.finish();
  snapshot.unparsed = parser.unparsed();
  return done;
}

Result<void> read_regions(Snapshot& snapshot, pid_t pid, const char* file,
                          std::optional<std::uint64_t> deadline_ns = std::nullopt) {
  snapshot.regions.clear();
  snapshot.overlaps = 0;
  return add_regions(snapshot,
                     [&](const auto& piece) { return read_proc_pieces(pid, file, piece, deadline_ns); });
}

}  // namespace

MemoryTotals totals_of(const ProcessStatus& status) {
  return {status.rss_anon, status.rss_file, status.rss_shmem, status.vm_swap, status.vm_pte};
}

Snapshot snapshot_from_text(std::string_view text) {
  Snapshot snapshot;
  (void)add_regions(snapshot, [&](const auto& piece) {
    piece(text);
    return Result<void>{};
  });
  const bool any_rss = std::any_of(snapshot.regions.begin(), snapshot.regions.end(),
                                   [](const Region& region) { return region.rss.has_value(); });
  if (!any_rss && !snapshot.regions.empty())
    snapshot.without_smaps = "the text is that of maps, which has no resident sizes";
  return snapshot;
}

namespace {

void find_deleted(pid_t pid, Snapshot& snapshot) {
  DeletedFiles files(pid);
  for (Region& region : snapshot.regions)
    if (region.deleted == Deleted::unknown) region.deleted = files.look(region.vma);
}

enum class Depth { mappings, resident_unless_many, resident };

Result<Snapshot> take(const Target& target, Depth depth, std::size_t expected = 0) {
  Snapshot snapshot;
  snapshot.regions.reserve(expected);
  snapshot.time_ns = monotonic_ns();
  const auto status = read_status(target.pid());
  if (!status) return tl::make_unexpected(status.error());
  snapshot.totals = totals_of(*status);
  snapshot.threads = status->threads;

  const pid_t pid = target.pid();
  bool with_smaps = depth == Depth::resident;
  if (!with_smaps) {
    if (auto maps = read_regions(snapshot, pid, "maps"); !maps) return tl::make_unexpected(maps.error());
    with_smaps = depth == Depth::resident_unless_many && snapshot.regions.size() <= smaps_mapping_limit;
    if (!with_smaps)
      snapshot.without_smaps = depth == Depth::mappings
                                   ? "only maps was read"
                                   : fmt::format("the process has {} mappings, and smaps is read up to {}",
                                                 snapshot.regions.size(), smaps_mapping_limit);
  }
  if (with_smaps) {
    // Each piece of smaps waits for the lock of the address space: 24 s for 260 mappings of 300 threads that
    // did nothing but map memory, on 2 processors with other work. maps has waited for no such lock since
    // Linux 6.17.
    constexpr std::uint64_t patience_ns = 1'000'000'000;
    const auto deadline =
        depth == Depth::resident ? std::nullopt : std::optional(monotonic_ns() + patience_ns);
    if (auto smaps = read_regions(snapshot, pid, "smaps", deadline); !smaps) {
      snapshot.without_smaps = to_line(smaps.error());
      if (auto maps = read_regions(snapshot, pid, "maps"); !maps) return tl::make_unexpected(maps.error());
    }
    snapshot.stacks = read_thread_stacks(target);
  }
  find_deleted(pid, snapshot);
  snapshot.duration_ns = monotonic_ns() - snapshot.time_ns;

  // A process that ended meanwhile reads as one without mappings.
  if (snapshot.regions.empty()) {
    if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
  }
  return snapshot;
}

}  // namespace

void leave_out(const Target& target, Snapshot& snapshot, std::span<const AddressRange> own) {
  if (own.empty()) return;
  std::erase_if(snapshot.regions, [&](const Region& region) {
    return std::any_of(own.begin(), own.end(), [&](const AddressRange& each) {
      return region.vma.start >= each.start && region.vma.end <= each.end;
    });
  });
  const auto subtract = [](std::optional<std::uint64_t>& from, std::uint64_t bytes) {
    if (from) *from -= std::min(*from, bytes);
  };
  const ResidentBytes resident = resident_bytes(target.pid(), own);
  subtract(snapshot.totals.rss_anon, resident.anonymous);
  subtract(snapshot.totals.rss_shmem, resident.shared);
}

Result<Snapshot> take_snapshot(const Target& target) {
  return take(target, Depth::resident_unless_many);
}

Result<Snapshot> take_mapping_snapshot(const Target& target, std::size_t expected) {
  return take(target, Depth::mappings, expected);
}

Result<Snapshot> take_full_snapshot(const Target& target, std::size_t expected) {
  return take(target, Depth::resident, expected);
}

Result<void> add_resident_pages(const Target& target, const Snapshot& before, Snapshot& after) {
  constexpr std::uint64_t most_bytes = std::uint64_t{64} << 30;
  constexpr std::size_t most_runs = 1'000'000;  // 40 MB in a trace file
  const auto page_size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto map = PageMap::open(target.pid(), page_size);
  if (!map) return tl::make_unexpected(map.error());
  RangeSet fresh = newly_mapped(before, after);
  const RangeSet opened = made_usable(before, after);
  fresh.insert(fresh.end(), opened.begin(), opened.end());
  ResidentPages pages;
  std::vector<AddressRange> resident;
  std::uint64_t bytes = 0;
  for (const AddressRange& range : make_range_set(std::move(fresh))) {
    if (bytes += range.size(); bytes > most_bytes || resident.size() > most_runs) break;
    const auto runs = map->resident(range);
    resident.insert(resident.end(), runs.begin(), runs.end());
    pages.looked_at.push_back(range);
  }
  pages.resident = make_range_set(std::move(resident));
  after.pages = std::move(pages);
  return {};
}

std::vector<AddressRange> mapped_addresses(const Snapshot& snapshot) {
  std::vector<AddressRange> ranges;
  ranges.reserve(snapshot.regions.size());
  for (const Region& region : snapshot.regions) ranges.push_back(region.vma.range());
  return make_range_set(std::move(ranges));
}

std::vector<AddressRange> newly_mapped(const Snapshot& before, const Snapshot& after) {
  return subtract(mapped_addresses(after), mapped_addresses(before));
}

namespace {

/// Mapped addresses that have a permission, or those that have none.
RangeSet addresses_with_permission(const Snapshot& snapshot, bool any) {
  std::vector<AddressRange> ranges;
  for (const Region& region : snapshot.regions)
    if ((region.vma.readable || region.vma.writable || region.vma.executable) == any)
      ranges.push_back(region.vma.range());
  return make_range_set(std::move(ranges));
}

}  // namespace

std::vector<AddressRange> made_usable(const Snapshot& before, const Snapshot& after) {
  return intersect(addresses_with_permission(before, false), addresses_with_permission(after, true));
}

std::vector<AddressRange> no_longer_mapped(const Snapshot& before, const Snapshot& after) {
  return subtract(mapped_addresses(before), mapped_addresses(after));
}

}  // namespace whomap
