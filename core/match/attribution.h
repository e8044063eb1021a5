// SPDX-License-Identifier: Apache-2.0
// Whose is the growth: the ledger's live intervals laid over the newly mapped addresses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/match/ledger.h"
#include "core/match/match.h"
#include "core/regions/snapshot.h"

namespace whomap {

/// A row of the answer.
struct RowKey {
  std::uint32_t stack = 0;
  std::int64_t number = 0;
  auto operator<=>(const RowKey&) const = default;
};

struct RowGrowth {
  std::uint64_t live_bytes = 0;
  std::uint64_t growth_bytes = 0;
  std::optional<double> resident_bytes = 0;  ///< nullopt as soon as one region's is not known
  bool resident_exact = true;                ///< counted page by page, not spread over regions
  std::uint64_t live_calls = 0;
  GrowthByTime by_time{};
};

struct Attribution {
  Growth growth;
  std::map<RowKey, RowGrowth> rows;
  std::vector<RegionAnswer> regions;
  std::vector<Unexplained> unexplained;
  std::vector<ResidentPart> resident;
  std::int64_t touched_older_bytes = 0;  ///< resident now and not before, in older memory that is no file's
  /// Unexplained growth in addresses that were reserved (PROT_NONE) before and are usable now.
  std::uint64_t made_usable_bytes = 0;
  bool has_jvm = false;                  ///< libjvm.so is mapped
  std::uint64_t inaccessible_bytes = 0;  ///< of the growth, in PROT_NONE regions
  std::uint64_t file_bytes = 0;          ///< of the growth, in regions that hold file pages
  std::uint64_t unsized_segments = 0;    ///< attached System V segments that `after` does not show
  std::uint64_t unsized_calls = 0;       ///< calls of unknown length, taken up to the next known address
};

/// growth.explained_bytes + growth.unexplained_bytes == growth.mapped_bytes, and the rows' growth_bytes add
/// up to explained_bytes, whatever the ledger holds. The parts of `resident` add up to the change of RssAnon,
/// RssFile and RssShmem.
Attribution attribute(const Snapshot& before, const Snapshot& after, const Ledger& ledger);

/// What of the ledger is live, where there are no two snapshots to lay it over; with `after`, only what is
/// still mapped there.
std::map<RowKey, RowGrowth> live_only(const Ledger& ledger, const Snapshot* after);

}  // namespace whomap
