// SPDX-License-Identifier: Apache-2.0
// The growth by whose code it is: rows of one culprit are one thing to say.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/match/match.h"

namespace whomap {

/// mmap, mremap, brk, shmat: the call makes a mapping rather than ends one.
bool makes_mappings(std::int64_t number);

/// Class of one row; needs growth_by_time, counts and culprit.
std::string stack_class(const StackAnswer& row, double seconds);

/// In the tenths first..last of the time.
std::uint64_t sum(const GrowthByTime& parts, std::size_t first, std::size_t last);

/// Rows of one culprit that came to it in one way: through an allocator, for a thread's stack, or directly.
struct CulpritGroup {
  const StackAnswer* first = nullptr;  ///< the row with the most growth
  std::string verdict;                 ///< of all its rows together
  std::uint64_t growth = 0, calls = 0, mapped = 0, live_calls = 0;
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> resident = 0;
  bool resident_exact = true;      ///< counted page by page
  bool leads_by_resident = false;  ///< first for what is resident, though another mapped more
  GrowthByTime by_time{};
  std::map<std::int64_t, std::uint64_t> calls_by_number;
};

/// A way with its groups by growth, descending.
struct GrowthByWay {
  std::vector<CulpritGroup> groups;
  std::uint64_t growth = 0;
};

/// By growth, descending; none where no row has any. Where it is known page by page that the largest group's
/// memory is hardly touched (less than a tenth), and that another's is half of what is resident, that other
/// group and its way come first.
std::vector<GrowthByWay> growth_by_way(const Answer& answer);

}  // namespace whomap
