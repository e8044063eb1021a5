// SPDX-License-Identifier: Apache-2.0
// The regions of a process at one moment, and what is new between two moments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/process/deleted_file.h"
#include "core/process/status.h"
#include "core/process/target.h"
#include "core/process/thread_stacks.h"
#include "core/process/vma.h"
#include "core/regions/range_set.h"

namespace whomap {

/// A VMA with what smaps says of it, in bytes; nullopt when smaps was not read or has no such field.
struct Region {
  Vma vma;
  std::optional<std::uint64_t> rss;
  std::optional<std::uint64_t> pss;        ///< rss, each page divided by the number of its mappings
  std::optional<std::uint64_t> anonymous;  ///< resident pages that belong to no file
  std::optional<std::uint64_t> swap;
  std::optional<std::uint64_t> lazy_free;  ///< MADV_FREE: counted in rss, free for the taking
  std::optional<std::uint64_t> anon_huge_pages;
  std::optional<std::uint64_t> hugetlb;  ///< pages of hugetlbfs, which rss does not count
  std::string vm_flags;                  ///< two-letter codes (man 5 proc_pid_smaps), empty when unknown
  std::optional<Deleted> deleted;        ///< of the mapped file; nullopt: there is none
  std::vector<std::pair<std::string, std::string>> unknown;  ///< fields of newer kernels, as printed
};

struct MemoryTotals {  ///< bytes; nullopt: the kernel did not say
  std::optional<std::uint64_t> rss_anon, rss_file, rss_shmem, swap, page_tables;
};

MemoryTotals totals_of(const ProcessStatus& status);

/// Pages as /proc/PID/pagemap shows them.
struct ResidentPages {
  RangeSet looked_at;  ///< the addresses that were asked for
  RangeSet resident;   ///< those of them that are in memory
};

struct Snapshot {
  std::uint64_t time_ns = 0;      ///< CLOCK_MONOTONIC, when reading began
  std::uint64_t duration_ns = 0;  ///< how long reading took
  std::vector<Region> regions;    ///< ascending, disjoint
  MemoryTotals totals;
  std::optional<std::uint64_t> threads;
  ThreadStacks stacks;
  std::string without_smaps;   ///< why smaps was not read; empty when it was
  std::uint64_t overlaps = 0;  ///< regions that changed while they were read, and came twice
  std::vector<std::string> unparsed;
  std::optional<ResidentPages> pages;  ///< nullopt: pagemap was not read
};

/// Above this many mappings take_snapshot() does not read smaps: it walks the page tables under the target's
/// mmap lock.
inline constexpr std::size_t smaps_mapping_limit = 20000;

/// Reads status, then smaps (maps where smaps is refused or there are too many mappings). Costs the target
/// its mmap lock while the kernel walks its page tables.
Result<Snapshot> take_snapshot(const Target& target);
/// Reads status and maps only: cheap, and without resident sizes. `expected` regions have room from the
/// start.
Result<Snapshot> take_mapping_snapshot(const Target& target, std::size_t expected = 0);
/// Reads status and smaps however many mappings there are, and where the threads' stacks are; for a caller
/// that looks at duration_ns before it reads again.
Result<Snapshot> take_full_snapshot(const Target& target, std::size_t expected = 0);

/// Adds to `after` which of the addresses that are new since `before` are in memory. Up to 64 GiB of them,
/// the first ones: a page costs the reader 8 bytes, and the target its mmap lock for as long. Errors: those
/// of PageMap::open.
Result<void> add_resident_pages(const Target& target, const Snapshot& before, Snapshot& after);

/// Takes memory of the tracer's own out: regions that lie in `own`, and what is resident there now from the
/// totals.
void leave_out(const Target& target, Snapshot& snapshot, std::span<const AddressRange> own);

/// From the saved text of /proc/PID/maps or /proc/PID/smaps; time_ns and totals stay unknown.
Snapshot snapshot_from_text(std::string_view text);

nlohmann::ordered_json to_json(const Snapshot& snapshot);
/// Everything but the regions, which may be too many to be in memory as JSON at once.
nlohmann::ordered_json to_json_without_regions(const Snapshot& snapshot);
nlohmann::ordered_json to_json(const Region& region);
/// nullopt when it is none: an address is missing, or the end is not above the start.
std::optional<Region> region_from_json(const nlohmann::json& json);
nlohmann::ordered_json to_json(const MemoryTotals& totals);
MemoryTotals totals_from_json(const nlohmann::json& json);
/// Errors: input_damaged, naming what is missing. Never throws.
Result<Snapshot> snapshot_from_json(const nlohmann::json& json);

/// Addresses mapped in `after` and not in `before`, ascending, without touching neighbours.
std::vector<AddressRange> newly_mapped(const Snapshot& before, const Snapshot& after);
/// Addresses that were mapped without any permission in `before` (PROT_NONE: reserved) and have one in
/// `after`.
std::vector<AddressRange> made_usable(const Snapshot& before, const Snapshot& after);
/// Addresses mapped in `before` and not in `after`, in the same form.
std::vector<AddressRange> no_longer_mapped(const Snapshot& before, const Snapshot& after);
/// All mapped addresses, in the same form.
std::vector<AddressRange> mapped_addresses(const Snapshot& snapshot);

}  // namespace whomap
