// SPDX-License-Identifier: Apache-2.0
// Growth to stacks: the answer, as data. core/report gives it a shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/trace/reader.h"
#include "core/trace/records.h"

namespace whomap {

struct StackAnswer {
  Stack stack;
  std::int64_t syscall = 0;
  std::uint32_t site = 0;
  std::uint64_t live_bytes = 0;      ///< mapped by this stack and still mapped at the end
  std::optional<std::uint64_t> resident_bytes;  ///< of growth_bytes, spread over regions by smaps; nullopt when unknown
  std::uint64_t growth_bytes = 0;    ///< live bytes that lie in newly mapped addresses
  double share = 0;                  ///< growth_bytes / growth.mapped_bytes
  std::uint64_t count = 0;           ///< successful calls
  std::uint64_t failed = 0;
  double bytes_per_minute = 0;       ///< growth_bytes over the traced time
  std::uint64_t first_ns = 0, last_ns = 0;
  std::uint64_t threads = 0;
  std::string verdict;               ///< class of this stack
};

struct RegionAnswer {
  AddressRange range;
  std::string name;
  std::string kind;                  ///< class of the region with its evidence
  std::string evidence;
  std::int64_t size_delta = 0;
  std::optional<std::int64_t> rss_delta;
  std::uint64_t explained_bytes = 0;
  std::vector<std::uint32_t> stacks;
};

struct Growth {   ///< differences after - before; bytes
  std::optional<std::int64_t> rss_anon, rss_file, rss_shmem, swap, page_tables;
  std::uint64_t mapped_bytes = 0;    ///< newly mapped addresses that still exist
  std::uint64_t explained_bytes = 0;
  std::uint64_t unexplained_bytes = 0;
};

struct Answer {
  TraceHeader header;
  TraceEnd totals;
  TraceReadSummary read;
  Growth growth;
  std::string verdict_class;
  std::string verdict_text;
  std::vector<StackAnswer> stacks;   ///< by growth_bytes, descending
  std::vector<RegionAnswer> regions; ///< grown ones, by size_delta, descending
  std::vector<std::string> notes;
};

/// Reads a trace and attributes the growth between its first and last snapshot.
/// A trace without two snapshots: growth is unknown and the answer says so.
Result<Answer> match_trace(const std::string& path);

}  // namespace whomap
