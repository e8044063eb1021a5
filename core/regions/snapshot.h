// SPDX-License-Identifier: Apache-2.0
// The regions of a process at one moment, and what is new between two moments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/process/status.h"
#include "core/process/target.h"
#include "core/process/vma.h"

namespace whomap {

struct Region {
  Vma vma;
  std::optional<std::uint64_t> rss;  ///< bytes resident (smaps Rss); nullopt when smaps was not read
};

struct MemoryTotals {  ///< bytes; nullopt: the kernel did not say
  std::optional<std::uint64_t> rss_anon, rss_file, rss_shmem, swap, page_tables;
};

struct Snapshot {
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC, when reading began
  std::vector<Region> regions;
  MemoryTotals totals;
  std::vector<std::string> unparsed;
};

/// Reads status and smaps (maps where smaps is refused). Costs the target its mmap lock while the kernel
/// walks its page tables.
Result<Snapshot> take_snapshot(const Target& target);

nlohmann::ordered_json to_json(const Snapshot& snapshot);
Result<Snapshot> snapshot_from_json(const nlohmann::json& json);

/// Addresses mapped in `after` and not in `before`, ascending, without touching neighbours.
std::vector<AddressRange> newly_mapped(const Snapshot& before, const Snapshot& after);

}  // namespace whomap
