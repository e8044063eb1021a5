// SPDX-License-Identifier: Apache-2.0
// What a verification can conclude, and the figures it concludes it from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/verify/trend.h"

namespace whomap {

enum class VerdictClass {
  fixed,
  not_fixed,
  not_same_leak,   ///< file pages grew, anonymous memory did not
  moved,           ///< to shared memory, swap or page tables
  proves_nothing,  ///< the unfixed variant passes the same test
  invalid,         ///< another process, or another program, than at the start
  inconclusive,
  interrupted,
};

/// "fixed", "not-fixed", ...: the words of the JSON and of the CI line.
std::string_view name_of(VerdictClass verdict);
ExitStatus exit_status(VerdictClass verdict);

enum class MemoryKind {
  anonymous,
  file,
  shmem,
  page_tables,
  held,  ///< what descriptors and SysV segments hold, mapped or not (held_memory.h)
};
/// "anonymous memory", "file pages", ...
std::string_view name_of(MemoryKind kind);

struct JudgeLimits {
  GrowthLimits growth;
  std::uint64_t least_operations = 200;  ///< below, an exercise proves nothing (the article's criterion)
  double most_failed_share = 0.1;        ///< of the exercises of the judged part
};

struct KindTrend {
  MemoryKind kind = MemoryKind::anonymous;
  Trend trend;
};

struct Verdict {
  VerdictClass kind = VerdictClass::inconclusive;
  std::string text;    ///< what was found, one sentence with its figures
  std::string remedy;  ///< what to do now; may be empty
};

struct Judgement {
  Verdict verdict;
  std::vector<KindTrend> trends;           ///< in the order of MemoryKind; empty with fewer than three points
  std::optional<double> swap_change;       ///< bytes, middle to last; part of anonymous memory
  std::optional<double> lazy_free_change;  ///< bytes, middle to last
  std::optional<double> cpu_seconds;       ///< used between middle and last
  std::optional<std::uint64_t>
      operations;  ///< between middle and last; unknown when the load comes from elsewhere
  std::optional<std::uint64_t> all_operations;
  std::vector<std::string> notes;

  [[nodiscard]] const Trend* trend(MemoryKind kind) const;
};

}  // namespace whomap
