// SPDX-License-Identifier: Apache-2.0
#include "core/match/culprit_group.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace whomap {
namespace {

constexpr std::int64_t nr_mmap = 9, nr_brk = 12, nr_mremap = 25, nr_shmat = 30;

/// All that stayed was mapped in the last tenth, and far more went through: most likely just not unmapped
/// yet.
bool in_passing(const StackAnswer& row) {
  return sum(row.growth_by_time, 0, 8) == 0 && row.mapped_bytes / 10 >= row.growth_bytes &&
         row.count > row.live_calls;
}

/// Nothing of what stayed was mapped in the last seven tenths of a window that is long enough to say so.
bool stopped_growing(const GrowthByTime& parts, double seconds) {
  return seconds >= 10 && sum(parts, 0, 2) != 0 && sum(parts, 3, 9) == 0;
}

enum Way { directly, through_allocator, for_threads, ways };

Way way_of(const StackAnswer& row) {
  if (row.culprit && row.culprit->creates_thread) return for_threads;
  return row.culprit && row.culprit->allocator_frame ? through_allocator : directly;
}

/// Rows without a culprit are their stack's own.
std::string culprit_key(const StackAnswer& row) {
  if (!row.culprit) return fmt::format("stack {}", row.stack.id);
  const Frame& frame = row.stack.frames[row.culprit->frame];
  return frame.module + '\n' + (frame.function ? *frame.function : fmt::format("{:#x}", frame.offset));
}

void add(CulpritGroup& group, const StackAnswer& row) {
  if (group.first == nullptr || row.growth_bytes > group.first->growth_bytes) group.first = &row;
  group.growth += row.growth_bytes;
  group.calls += row.count;
  group.mapped += row.mapped_bytes;
  group.live_calls += row.live_calls;
  ++group.rows;
  if (group.resident && row.resident_bytes)
    *group.resident += *row.resident_bytes;
  else
    group.resident.reset();
  group.resident_exact = group.resident_exact && row.resident_exact;
  group.calls_by_number[row.syscall] += row.count;
  for (std::size_t i = 0; i < group.by_time.size(); ++i) group.by_time[i] += row.growth_by_time[i];
}

/// As if it were one stack: a cache that one caller filled early and another late is still being filled.
std::string class_of(const CulpritGroup& group, double seconds) {
  StackAnswer all;
  all.syscall = group.first->syscall;
  all.culprit = group.first->culprit;
  all.growth_bytes = group.growth;
  all.count = group.calls;
  all.mapped_bytes = group.mapped;
  all.live_calls = group.live_calls;
  all.growth_by_time = group.by_time;
  return stack_class(all, seconds);
}

/// See growth_by_way.
void lead_with_resident(std::vector<GrowthByWay>& all) {
  if (all.empty()) return;
  const CulpritGroup& largest = all.front().groups.front();
  std::uint64_t resident = 0;
  std::size_t way_at = 0;
  std::size_t group_at = 0;
  const CulpritGroup* most = &largest;
  for (std::size_t way = 0; way < all.size(); ++way)
    for (std::size_t i = 0; i < all[way].groups.size(); ++i) {
      const CulpritGroup& group = all[way].groups[i];
      if (!group.resident || !group.resident_exact) return;
      resident += *group.resident;
      if (*group.resident <= *most->resident) continue;
      most = &group;
      way_at = way;
      group_at = i;
    }
  if (most == &largest || *largest.resident >= largest.growth / 10) return;
  if (*most->resident < resident - *most->resident || *most->resident < least_resident_growth) return;
  auto& groups = all[way_at].groups;
  groups[group_at].leads_by_resident = true;
  std::rotate(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(group_at),
              groups.begin() + static_cast<std::ptrdiff_t>(group_at) + 1);
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(way_at),
              all.begin() + static_cast<std::ptrdiff_t>(way_at) + 1);
}

}  // namespace

bool makes_mappings(std::int64_t number) {
  return number == nr_mmap || number == nr_brk || number == nr_mremap || number == nr_shmat;
}

std::uint64_t sum(const GrowthByTime& parts, std::size_t first, std::size_t last) {
  std::uint64_t bytes = 0;
  for (std::size_t i = first; i <= last; ++i) bytes += parts[i];
  return bytes;
}

std::string stack_class(const StackAnswer& row, double seconds) {
  const bool hooked = row.culprit && row.culprit->hook_frame && !row.culprit->unmap_frame;
  if (!makes_mappings(row.syscall) || row.count == 0) return "not-growing";
  if (row.growth_bytes == 0 || in_passing(row)) return hooked ? "pass-through" : "churn";
  if (row.culprit && row.culprit->creates_thread) return "thread-stacks";
  // What an allocator took at first and has not needed more of since: it keeps it for its next requests.
  if (row.culprit && row.culprit->allocator_frame)
    return stopped_growing(row.growth_by_time, seconds) && row.live_calls > 1 ? "retention" : "malloc";
  return stopped_growing(row.growth_by_time, seconds) ? "plateau" : "leak";
}

std::vector<GrowthByWay> growth_by_way(const Answer& answer) {
  std::array<std::map<std::string, CulpritGroup>, ways> groups;
  for (const StackAnswer& row : answer.stacks)
    if (row.growth_bytes != 0) add(groups[way_of(row)][culprit_key(row)], row);
  std::vector<GrowthByWay> result;
  for (auto& same_way : groups) {
    GrowthByWay way;
    for (auto& [key, group] : same_way) {
      group.verdict = class_of(group, answer.seconds);
      way.growth += group.growth;
      way.groups.push_back(std::move(group));
    }
    std::stable_sort(
        way.groups.begin(), way.groups.end(),
        [](const CulpritGroup& left, const CulpritGroup& right) { return left.growth > right.growth; });
    if (!way.groups.empty()) result.push_back(std::move(way));
  }
  std::stable_sort(result.begin(), result.end(), [](const GrowthByWay& left, const GrowthByWay& right) {
    return left.growth > right.growth;
  });
  lead_with_resident(result);
  return result;
}

}  // namespace whomap
