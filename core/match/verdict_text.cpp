// SPDX-License-Identifier: Apache-2.0
#include "core/match/verdict_text.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "core/match/culprit_text.h"
#include "core/match/quantity.h"
#include "core/match/verdict.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

std::string call_name(std::int64_t number) {
  const MemorySyscall* const call = memory_syscall(number);
  return call != nullptr ? std::string(call->name) : fmt::format("system call {}", number);
}

/// "82 mmap calls"; "100 of 2,080 mmap calls" where the others' memory is gone again; "285 of 286 calls (1
/// mmap, 285 brk)" where they are of several kinds.
std::string calls_text(const CulpritGroup& group) {
  std::string text = group.live_calls < group.calls ? count_text(group.live_calls) + " of " : "";
  if (group.calls_by_number.size() == 1) {
    text += count_text(group.calls, call_name(group.calls_by_number.begin()->first) + " call");
  } else {
    std::string kinds;
    for (const auto& [number, count] : group.calls_by_number)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count_text(count), call_name(number));
    text += fmt::format("{} ({})", count_text(group.calls, "call"), kinds);
  }
  if (group.rows > 1) text += fmt::format(" from {} stacks", group.rows);
  return text;
}

std::string rate_text(const Answer& answer, std::uint64_t bytes) {
  if (answer.seconds <= 0) return "at an unknown rate";
  return fmt::format("{}/min", bytes_text(whole_bytes(static_cast<double>(bytes) * 60 / answer.seconds)));
}

/// Less than half of what stayed mapped is resident: its size is that of addresses.
bool mostly_untouched(const CulpritGroup& group) {
  return group.resident && *group.resident < group.growth - *group.resident;
}

/// ", 12 KiB of it resident", where that is less than half.
std::string resident_share(const CulpritGroup& group) {
  if (!mostly_untouched(group)) return {};
  return fmt::format(", {}{} of it resident", group.resident_exact ? "" : "about ",
                     bytes_text(*group.resident));
}

std::string trend(const Answer& answer, const CulpritGroup& group) {
  if (group.live_calls == 1) return "It is a single mapping, which is no trend.";
  if (answer.seconds <= 0) return "Without times it cannot be told from a cache that is still filling.";
  std::string text =
      sum(group.by_time, 7, 9) != 0
          ? fmt::format("Still growing at the end, {}{} on average.", rate_text(answer, group.growth),
                        mostly_untouched(group) ? " of address space" : "")
          : "None of it was mapped in the last third of the time.";
  const bool longer = answer.watched && answer.watched->seconds > answer.seconds;
  if (std::max(answer.seconds, longer ? answer.watched->seconds : 0) < sure_seconds)
    text += fmt::format(" {} cannot tell a leak from a cache that is still filling.",
                        longer ? seconds_text(answer.watched->seconds) : span_text(answer));
  return text;
}

/// Mapping is not using: a leak of untouched mappings costs addresses, not memory.
std::string resident_text(const CulpritGroup& group) {
  if (!group.resident || *group.resident >= group.growth / 10) return {};
  return " So far it uses up addresses rather than memory.";
}

std::string lower_first(std::string_view text) {
  std::string lower(text);
  if (lower.starts_with("A ")) lower[0] = 'a';
  return lower;
}

/// "6.2 MiB of the 6.3 MiB newly mapped in 10.0 s (98.4 %)"
std::string amount_of(const Answer& answer, std::uint64_t bytes) {
  const std::uint64_t mapped = answer.growth.mapped_bytes;
  // Beside far more that grew without being mapped, "1 MiB of 1 MiB (100 %)" would mislead.
  const auto grew = static_cast<std::uint64_t>(std::max<std::int64_t>(0, answer.growth.rss_anon.value_or(0)));
  if (grew / 4 > mapped && bytes_text(bytes) == bytes_text(mapped))
    return fmt::format("{}, {} that was newly mapped in {}", bytes_text(bytes),
                       bytes == mapped ? "all" : "nearly all", span_text(answer));
  return fmt::format("{} of the {} newly mapped in {} ({})", bytes_text(bytes), bytes_text(mapped),
                     span_text(answer), share_of(bytes, mapped));
}

/// Who asked the allocator. One of many callers that ask in turn is not the one who holds the memory.
std::string asking_text(const Answer& answer, const GrowthByWay& way) {
  const CulpritGroup& most = way.groups.front();
  const StackAnswer& row = *most.first;
  if (row.culprit && row.culprit->beyond_stack)
    return fmt::format("{} mapped {}, by {}", allocator_text(row), amount(answer, most), calls_text(most));
  if (most.growth * 2 >= way.growth || most.leads_by_resident)
    return fmt::format("{} allocates through {}, which mapped {}, by {}", who(answer, row),
                       allocator_text(row), amount(answer, most), calls_text(most));
  return fmt::format("{} mapped {} for {}, most of it, {}, for {} (by {})", allocator_text(row),
                     amount_of(answer, way.growth), count_text(way.groups.size(), "function"),
                     bytes_text(most.growth), who(answer, row), calls_text(most));
}

std::string named(const Answer& answer, const CulpritGroup& group) {
  return fmt::format("{}, {} ({}){}", who(answer, *group.first), bytes_text(group.growth),
                     share_of(group.growth, answer.growth.mapped_bytes), resident_share(group));
}

}  // namespace

std::string share_of(std::uint64_t part, std::uint64_t whole) {
  return share_text(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole));
}

/// "10.0 s"; a log without times has none.
std::string span_text(const Answer& answer) {
  return answer.seconds > 0 ? seconds_text(answer.seconds) : "a time that the log does not tell";
}

std::string amount(const Answer& answer, const CulpritGroup& group) {
  return amount_of(answer, group.growth) + resident_share(group);
}

std::string hook_text(const StackAnswer& row) {
  if (!row.culprit) return {};
  const Culprit& culprit = *row.culprit;
  if (culprit.unmap_frame)
    return fmt::format(
        " The mappings are made inside {}: the library maps while its callers unmap, the callers are "
        "not the cause.",
        frame_place(row.stack.frames[*culprit.unmap_frame]));
  if (culprit.hook_frame)
    return fmt::format(" {} only passes the calls through.",
                       module_name(row.stack.frames[*culprit.hook_frame]));
  return {};
}

std::string spread_text(const Answer& answer, const std::vector<GrowthByWay>& ways) {
  const CulpritGroup& most = ways.front().groups.front();
  std::vector<const CulpritGroup*> others;
  std::uint64_t growth = most.growth;
  for (const GrowthByWay& way : ways)
    for (const CulpritGroup& group : way.groups) {
      if (&group == &most) continue;
      others.push_back(&group);
      growth += group.growth;
    }
  if (others.empty() || (growth - most.growth) < growth / 10) return {};
  std::stable_sort(others.begin(), others.end(), [](const CulpritGroup* left, const CulpritGroup* right) {
    return left->growth > right->growth;
  });
  std::string text = most.leads_by_resident      ? " Next, by address space: "
                     : most.growth * 2 >= growth ? " Next: "
                                                 : fmt::format(" The growth is spread over {}; next: ",
                                                               count_text(others.size() + 1, "function"));
  text += named(answer, *others[0]);
  if (others.size() > 1) text += "; " + named(answer, *others[1]);
  return text + ".";
}

std::string leak_text(const Answer& answer, const CulpritGroup& group) {
  const std::string_view lines = runtime_lines(group.first->stack);
  return fmt::format("{} maps memory that stays mapped: {}, by {}. {}{}{}{}{}", who(answer, *group.first),
                     amount(answer, group), calls_text(group), trend(answer, group), resident_text(group),
                     hook_text(*group.first), lines.empty() ? "" : " ", lines);
}

std::string plateau_text(const Answer& answer, const CulpritGroup& group) {
  return fmt::format(
      "{} mapped {}, all of it in the first third of the time; it has not grown since. Watch longer to "
      "see whether it stays so.",
      who(answer, *group.first), amount(answer, group));
}

std::string malloc_text(const Answer& answer, const GrowthByWay& way) {
  const CulpritGroup& group = way.groups.front();
  const StackAnswer& row = *group.first;
  // Who asked in Python, and in native code that has names, a profiler shows as well.
  const bool nameless = row.culprit && is_nameless_runtime_code(row.stack.frames[row.culprit->frame]);
  const std::string_view lines = nameless ? runtime_lines(row.stack) : "";
  return fmt::format(
      "{}. {} {}; the stacks here show only who was asking when the allocator needed more.{}{}{}",
      asking_text(answer, way), trend(answer, group),
      profiler_for(row.culprit ? row.culprit->runtime : std::nullopt), hook_text(row),
      lines.empty() ? "" : " ", lines);
}

std::string retention_text(const Answer& answer, const CulpritGroup& group) {
  const StackAnswer& row = *group.first;
  const std::string through = row.culprit && row.culprit->allocator_frame
                                  ? frame_name(row.stack.frames[*row.culprit->allocator_frame])
                                  : "its allocator";
  return fmt::format(
      "{} was given memory by {}, which mapped {}, all of it in the first third of the time, and none since: "
      "the "
      "allocator keeps what it has for the next requests. Whether the program still uses it, system calls "
      "cannot tell; "
      "{}.",
      who(answer, row), through, amount(answer, group),
      lower_first(profiler_for(row.culprit ? row.culprit->runtime : std::nullopt)));
}

std::string thread_stacks_text(const Answer& answer, const CulpritGroup& group) {
  std::string threads;
  if (answer.threads_before && answer.threads) {
    const std::uint64_t was = *answer.threads_before;
    const std::uint64_t is = *answer.threads;
    threads = is > was
                  ? fmt::format(" The number of threads rose from {} to {}.", was, is)
                  : fmt::format(
                        " The number of threads did not rise ({} before, {} after): these are stacks of "
                        "threads that have exited and were neither joined nor detached, or the up to 40 MiB "
                        "of idle stacks that glibc keeps.",
                        was, is);
  }
  return fmt::format("{} creates threads whose stacks stay mapped: {}, by {}.{}", who(answer, *group.first),
                     amount(answer, group), calls_text(group), threads);
}

/// The region that became resident most.
const RegionAnswer* most_resident(const Answer& answer) {
  const RegionAnswer* most = nullptr;
  for (const RegionAnswer& region : answer.regions)
    if (region.rss_delta.value_or(0) > 0 && (most == nullptr || *region.rss_delta > *most->rss_delta))
      most = &region;
  return most;
}

const RegionAnswer* most_touched(const Answer& answer) {
  const auto older = [](const RegionAnswer& region) { return *region.rss_delta - region.size_delta; };
  const RegionAnswer* most = nullptr;
  for (const RegionAnswer& region : answer.regions)
    if (region.rss_delta && older(region) > 0 && (most == nullptr || older(region) > older(*most)))
      most = &region;
  return most;
}

std::string region_text(const RegionAnswer& region) {
  return fmt::format("{:x}-{:x} ({}{}{}) by {}", region.range.start, region.range.end, region.kind,
                     region.name.empty() ? "" : ", ", region.name,
                     bytes_text(static_cast<std::uint64_t>(*region.rss_delta)));
}

/// What the captured calls did, for the verdicts that name no stack.
std::string traffic_text(const Answer& answer) {
  const std::uint64_t mapped =
      std::accumulate(answer.stacks.begin(), answer.stacks.end(), std::uint64_t{0},
                      [](std::uint64_t all, const StackAnswer& row) { return all + row.mapped_bytes; });
  const std::uint64_t unmapped =
      std::accumulate(answer.stacks.begin(), answer.stacks.end(), std::uint64_t{0},
                      [](std::uint64_t all, const StackAnswer& row) { return all + row.unmapped_bytes; });
  return fmt::format("{} mapped {} and unmapped {}", count_text(answer.events, "captured call"),
                     bytes_text(mapped), bytes_text(unmapped));
}

}  // namespace whomap
