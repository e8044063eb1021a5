// SPDX-License-Identifier: Apache-2.0
// Growth to stacks: the answer, as data. core/report gives it a shape.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/match/culprit.h"
#include "core/match/signature_file.h"
#include "core/regions/growth_shape.h"
#include "core/trace/reader.h"
#include "core/trace/records.h"

namespace whomap {

/// The time between the snapshots in ten equal parts: when the memory that stayed was mapped.
using GrowthByTime = std::array<std::uint64_t, 10>;

/// One row: a stack and the system call made there.
struct StackAnswer {
  Stack stack;
  std::int64_t syscall = 0;
  std::uint32_t site = 0;
  std::uint64_t live_bytes = 0;  ///< mapped by this stack and still mapped at the end
  /// Of growth_bytes; nullopt when unknown.
  std::optional<std::uint64_t> resident_bytes;
  bool resident_exact =
      false;  ///< counted page by page (pagemap), else spread evenly over each region (smaps)
  std::uint64_t growth_bytes = 0;  ///< live bytes that lie in newly mapped addresses
  double share = 0;                ///< growth_bytes / growth.mapped_bytes
  std::uint64_t count = 0;         ///< successful calls
  std::uint64_t failed = 0;
  std::uint64_t mapped_bytes = 0;    ///< by all its calls, whatever became of them
  std::uint64_t unmapped_bytes = 0;  ///< by its munmap calls
  std::uint64_t live_calls = 0;      ///< live intervals that lie in newly mapped addresses
  double bytes_per_minute = 0;       ///< growth_bytes over the traced time
  std::uint64_t first_ns = 0, last_ns = 0;
  std::uint64_t threads = 0;
  GrowthByTime growth_by_time{};
  std::optional<Culprit> culprit;
  std::string verdict;         ///< class of this stack
  std::vector<Advice> advice;  ///< by certainty
};

/// A region as a watch saw it, which is longer than the trace.
struct RegionTrend {
  double seconds = 0;  ///< since it, or what merged into it, was first seen
  double size_delta = 0, resident_delta = 0;
  GrowthShape shape;  ///< of its resident memory; of its size where none of it is resident
};

struct RegionAnswer {
  AddressRange range;
  std::string name;
  std::string kind;             ///< class of the region
  std::string evidence;         ///< how one can tell its class
  std::int64_t size_delta = 0;  ///< newly mapped addresses in it
  std::optional<std::int64_t> rss_delta;
  std::uint64_t explained_bytes = 0;
  std::vector<std::uint32_t> stacks;
  std::optional<RegionTrend> watched;
  std::vector<Advice> advice;  ///< by certainty
};

/// What a watch of the same process adds.
struct WatchedGrowth {
  std::string name;                        ///< of its file
  double seconds = 0;                      ///< from its first reading to the trace's last snapshot
  std::uint64_t snapshots = 0;             ///< of the watch, up to the trace's last one
  GrowthShape resident;                    ///< RssAnon, RssShmem and swap together
  std::uint64_t mapped_bytes = 0;          ///< newly mapped since its first reading
  std::uint64_t in_explained_regions = 0;  ///< of those, in regions into which captured stacks map
  std::optional<double> seconds_after;     ///< its last reading was that long after the trace's last snapshot
  std::uint64_t still_mapped = 0, of_growth = 0;  ///< at that time, of the growth during the trace
};

struct Growth {                           ///< differences after - before; bytes
  bool known = true;                      ///< false: there were no two snapshots, the numbers mean nothing
  std::optional<std::int64_t> lazy_free;  ///< MADV_FREE: counted as resident, free for the taking
  std::optional<std::int64_t> rss_anon, rss_file, rss_shmem, swap, page_tables;
  std::uint64_t mapped_bytes =
      0;  ///< newly mapped addresses that still exist, and reserved ones (PROT_NONE) made usable
  std::uint64_t unmapped_bytes = 0;  ///< mapped before, and not any more
  std::uint64_t explained_bytes = 0;
  std::uint64_t unexplained_bytes = 0;
};

/// A part of growth.unexplained_bytes and what is known of it; the parts add up to the whole.
struct Unexplained {
  std::string reason;
  std::uint64_t bytes = 0;
};

/// A part of the change of resident memory; the parts add up to RssAnon + RssFile + RssShmem.
struct ResidentPart {
  std::string where;
  std::int64_t bytes = 0;
};

struct Answer {
  TraceHeader header;
  TraceEnd totals;
  TraceReadSummary read;
  bool complete = false;     ///< the trace has its end record; else totals are unknown
  std::uint64_t events = 0;  ///< read from the trace
  std::uint64_t failed_calls = 0;
  std::optional<std::uint64_t> lost;  ///< nullopt: a cut trace that says nothing of it
  std::optional<std::uint64_t> threads, threads_before;
  double seconds = 0;  ///< between the snapshots; of the whole trace where there are no two
  Growth growth;
  std::string verdict_class;  ///< empty: undecided
  std::string verdict_text;
  std::vector<Advice> advice;            ///< where no stack can have one: by what the process has mapped
  std::vector<StackAnswer> stacks;       ///< by growth_bytes, descending
  std::vector<RegionAnswer> regions;     ///< grown ones, by size_delta, descending
  std::vector<Unexplained> unexplained;  ///< by bytes, descending
  std::vector<ResidentPart> resident;    ///< by bytes, descending; empty when resident sizes are unknown
  std::optional<WatchedGrowth> watched;
  std::vector<std::string> notes;
};

struct TimedTotals {
  std::uint64_t time_ns = 0;
  MemoryTotals totals;
};

/// The regions of a process over a longer time, as a watch saw them.
struct RegionHistory {
  TargetIdentity target;
  std::string name;                 ///< where it comes from
  std::vector<Snapshot> snapshots;  ///< ascending in time, at least one
  std::vector<TimedTotals> totals;  ///< ascending, of more readings than there are snapshots
  std::vector<std::string> notes;   ///< what of the file was damaged or missing
};

struct MatchOptions {
  /// Snapshots from elsewhere, in order of time; empty: those of the trace. The last one takes the place of
  /// the trace's last; where the trace has none of its own (an imported log), the first one is the state
  /// before.
  std::vector<Snapshot> regions;
  std::string regions_name;  ///< where they come from, for the notes
  SignatureFile known;       ///< causes to look for, and rules for frames beside our own
  /// What is known of the time around the trace. It stands in for snapshots that a cut trace has not.
  std::optional<RegionHistory> history;
};

/// Reads a trace and attributes the growth between its first and last snapshot.
/// A trace without two snapshots: growth is unknown and the answer says so.
Result<Answer> match_trace(const std::string& path);
Result<Answer> match_trace(const std::string& path, const MatchOptions& options);

/// 0 when growth was explained (or shown to be a plateau, retention, a reservation filled), 1 when nothing
/// grew, nothing matched, or no site was hit.
ExitStatus answer_status(const Answer& answer);

}  // namespace whomap
