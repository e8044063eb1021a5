// SPDX-License-Identifier: Apache-2.0
#include "core/match/verdict.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

constexpr std::int64_t nr_mmap = 9, nr_brk = 12, nr_mremap = 25, nr_shmat = 30;

bool makes_mappings(std::int64_t number) {
  return number == nr_mmap || number == nr_brk || number == nr_mremap || number == nr_shmat;
}

std::string call_name(std::int64_t number) {
  const MemorySyscall* const call = memory_syscall(number);
  return call != nullptr ? std::string(call->name) : fmt::format("system call {}", number);
}

std::uint64_t sum(const GrowthByTime& parts, std::size_t first, std::size_t last) {
  std::uint64_t bytes = 0;
  for (std::size_t i = first; i <= last; ++i) bytes += parts[i];
  return bytes;
}

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

/// Rows that come from the same code: one culprit, one class.
struct Group {
  const StackAnswer* first = nullptr;  ///< the row with the most growth
  std::string verdict;
  std::uint64_t growth = 0, calls = 0, mapped = 0, live_calls = 0;
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> resident = 0;
  GrowthByTime by_time{};
  std::map<std::int64_t, std::uint64_t> calls_by_number;
};

/// By growth, descending.
std::vector<Group> group_rows(const Answer& answer) {
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const StackAnswer& row : answer.stacks) {
    if (row.growth_bytes == 0) continue;
    std::string who = fmt::format("stack {}", row.stack.id);
    if (row.culprit) {
      const Frame& frame = row.stack.frames[row.culprit->frame];
      who = frame.module + '\n' + (frame.function ? *frame.function : fmt::format("{:#x}", frame.offset));
    }
    Group& group = groups[{row.verdict, who}];
    if (group.first == nullptr || row.growth_bytes > group.first->growth_bytes) group.first = &row;
    group.verdict = row.verdict;
    group.growth += row.growth_bytes;
    group.calls += row.count;
    group.mapped += row.mapped_bytes;
    group.live_calls += row.live_calls;
    ++group.rows;
    if (group.resident && row.resident_bytes)
      *group.resident += *row.resident_bytes;
    else
      group.resident.reset();
    group.calls_by_number[row.syscall] += row.count;
    for (std::size_t i = 0; i < group.by_time.size(); ++i) group.by_time[i] += row.growth_by_time[i];
  }
  std::vector<Group> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Group& left, const Group& right) { return left.growth > right.growth; });
  return sorted;
}

std::string share_of(std::uint64_t part, std::uint64_t whole) {
  return share_text(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole));
}

/// "82 mmap calls"; "100 of 2,080 mmap calls" where the others' memory is gone again.
std::string calls_text(const Group& group) {
  std::string text;
  if (group.live_calls < group.calls) text = count_text(group.live_calls) + " of";
  for (const auto& [number, count] : group.calls_by_number)
    text += fmt::format("{}{}",
                        text.empty()            ? ""
                        : text.ends_with(" of") ? " "
                                                : " and ",
                        count_text(count, call_name(number) + " call"));
  if (group.rows > 1) text += fmt::format(" from {} stacks", group.rows);
  return text;
}

std::string who(const StackAnswer& row) {
  if (row.culprit) return frame_place(row.stack.frames[row.culprit->frame]);
  if (row.stack.frames.empty()) return fmt::format("code without a captured stack (stack {})", row.stack.id);
  return fmt::format("code behind {} (no frame of the program itself was captured)",
                     frame_place(row.stack.frames.back()));
}

/// "10.0 s"; a log without times has none.
std::string span_text(const Answer& answer) {
  return answer.seconds > 0 ? seconds_text(answer.seconds) : "a time that the log does not tell";
}

/// "6.2 MiB of the 6.3 MiB newly mapped in 10.0 s (98.4 %)"
std::string amount(const Answer& answer, const Group& group) {
  return fmt::format("{} of the {} newly mapped in {} ({})", bytes_text(group.growth),
                     bytes_text(answer.growth.mapped_bytes), span_text(answer),
                     share_of(group.growth, answer.growth.mapped_bytes));
}

std::string rate_text(const Answer& answer, std::uint64_t bytes) {
  if (answer.seconds <= 0) return "at an unknown rate";
  return fmt::format("{}/min", bytes_text(whole_bytes(static_cast<double>(bytes) * 60 / answer.seconds)));
}

std::string trend(const Answer& answer, const Group& group) {
  if (group.live_calls == 1) return "It is a single mapping, which is no trend.";
  if (answer.seconds <= 0) return "Without times it cannot be told from a cache that is still filling.";
  std::string text = sum(group.by_time, 7, 9) != 0 ? fmt::format("Still growing at the end, {} on average.",
                                                                 rate_text(answer, group.growth))
                                                   : "None of it was mapped in the last third of the time.";
  const bool longer = answer.watched && answer.watched->seconds > answer.seconds;
  if (std::max(answer.seconds, longer ? answer.watched->seconds : 0) < sure_seconds)
    text += fmt::format(" {} cannot tell a leak from a cache that is still filling.",
                        longer ? seconds_text(answer.watched->seconds) : span_text(answer));
  return text;
}

/// Mapping is not using: a leak of untouched mappings costs addresses, not memory.
std::string resident_text(const Group& group) {
  if (!group.resident || *group.resident >= group.growth / 10) return {};
  return fmt::format(" Only about {} of it is resident: so far it uses up addresses rather than memory.",
                     bytes_text(*group.resident));
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

std::string leak_text(const Answer& answer, const Group& group) {
  return fmt::format("{} maps memory that stays mapped: {}, by {}. {}{}{}", who(*group.first),
                     amount(answer, group), calls_text(group), trend(answer, group), resident_text(group),
                     hook_text(*group.first));
}

std::string lower_first(std::string_view text) {
  std::string lower(text);
  if (lower.starts_with("A ")) lower[0] = 'a';
  return lower;
}

std::string plateau_text(const Answer& answer, const Group& group) {
  return fmt::format(
      "{} mapped {}, all of it in the first third of the time; it has not grown since. Watch longer to "
      "see whether it stays so.",
      who(*group.first), amount(answer, group));
}

std::string malloc_text(const Answer& answer, const Group& group) {
  const StackAnswer& row = *group.first;
  const std::string through = row.culprit && row.culprit->allocator_frame
                                  ? frame_name(row.stack.frames[*row.culprit->allocator_frame])
                                  : "malloc";
  const std::optional<Runtime> runtime = row.culprit ? row.culprit->runtime : std::nullopt;
  const std::string asking =
      row.culprit && row.culprit->beyond_stack
          ? fmt::format("{} mapped", runtime ? fmt::format("the memory manager of {} ({})",
                                                           runtime_name(*runtime), through)
                                             : fmt::format("the allocator ({})", through))
          : fmt::format("{} allocates through {}, which mapped", who(row),
                        runtime
                            ? fmt::format("the memory manager of {} ({})", runtime_name(*runtime), through)
                            : through);
  return fmt::format(
      "{} {}, by {}. {} {}; the stacks here show only who was asking when the allocator needed more.{}",
      asking, amount(answer, group), calls_text(group), trend(answer, group), profiler_for(runtime),
      hook_text(row));
}

std::string retention_text(const Answer& answer, const Group& group) {
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
      who(row), through, amount(answer, group),
      lower_first(profiler_for(row.culprit ? row.culprit->runtime : std::nullopt)));
}

std::string thread_stacks_text(const Answer& answer, const Group& group) {
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
  return fmt::format("{} creates threads whose stacks stay mapped: {}, by {}.{}", who(*group.first),
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

std::string region_text(const RegionAnswer& region) {
  return fmt::format("{:x}-{:x} ({}{}{}) by {}", region.range.start, region.range.end, region.kind,
                     region.name.empty() ? "" : ", ", region.name,
                     bytes_text(static_cast<std::uint64_t>(*region.rss_delta)));
}

void set(Answer& answer, std::string verdict, std::string text) {
  answer.verdict_class = std::move(verdict);
  answer.verdict_text = std::move(text);
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

/// Resident memory grew, mapped memory did not.
bool judge_resident(Answer& answer) {
  const auto grew = [](std::optional<std::int64_t> delta) {
    return delta && *delta >= static_cast<std::int64_t>(least_resident_growth);
  };
  const RegionAnswer* const region = most_resident(answer);
  const std::string where =
      region != nullptr ? fmt::format(" Most: {}.", region_text(*region)) : std::string();
  const std::int64_t freed = answer.growth.lazy_free.value_or(0);
  if (grew(answer.growth.rss_anon) && freed > *answer.growth.rss_anon / 2) {
    set(answer, "retention",
        fmt::format("RssAnon grew by {} in {}, and {} of it are pages that were given back with MADV_FREE "
                    "(LazyFree in "
                    "smaps): the kernel takes them when it needs memory.{}",
                    bytes_text(static_cast<std::uint64_t>(*answer.growth.rss_anon)), span_text(answer),
                    bytes_text(static_cast<std::uint64_t>(freed)), where));
    return true;
  }
  if (grew(answer.growth.rss_anon)) {
    set(answer, "reservation",
        fmt::format(
            "RssAnon grew by {} in {} inside regions that were mapped before the trace: memory that was "
            "reserved "
            "earlier is being touched, no call maps it.{} Which code touches it, system calls cannot tell.",
            bytes_text(static_cast<std::uint64_t>(*answer.growth.rss_anon)), span_text(answer), where));
    return true;
  }
  if (grew(answer.growth.rss_file)) {
    set(answer, "file-pages",
        fmt::format("RssFile grew by {} in {}, RssAnon by {}: pages of mapped files became resident, which "
                    "the kernel can "
                    "drop again.{}",
                    bytes_text(static_cast<std::uint64_t>(*answer.growth.rss_file)), span_text(answer),
                    answer.growth.rss_anon ? signed_bytes_text(*answer.growth.rss_anon) : "an unknown amount",
                    where));
    return true;
  }
  return false;
}

void judge_nothing_mapped(Answer& answer) {
  if (judge_resident(answer)) return;
  const std::string grown = answer.growth.mapped_bytes == 0
                                ? fmt::format("no address was newly mapped in {}", span_text(answer))
                                : fmt::format("only {} were newly mapped in {}",
                                              bytes_text(answer.growth.mapped_bytes), span_text(answer));
  const std::string resident =
      answer.growth.rss_anon
          ? fmt::format(", RssAnon changed by {}", signed_bytes_text(*answer.growth.rss_anon))
          : "";
  std::uint64_t mapped = 0;
  std::uint64_t passed = 0;
  const StackAnswer* busiest = nullptr;
  for (const StackAnswer& row : answer.stacks) {
    mapped += row.mapped_bytes;
    if (row.verdict == "pass-through") passed += row.mapped_bytes;
    if (busiest == nullptr || row.mapped_bytes > busiest->mapped_bytes) busiest = &row;
  }
  const bool traffic = mapped >= 16 * least_mapped_growth;
  const bool through_hook = traffic && passed > mapped / 2;
  const std::string most = traffic ? fmt::format(" Most of it by {}: {} of its {} are still mapped.{}",
                                                 who(*busiest), bytes_text(busiest->growth_bytes),
                                                 bytes_text(busiest->mapped_bytes), hook_text(*busiest))
                                   : "";
  set(answer,
      through_hook ? "pass-through"
      : traffic    ? "churn"
                   : "not-growing",
      fmt::format("nothing grew: {}{}; {}.{}", grown, resident, traffic_text(answer), most));
}

void judge_unexplained(Answer& answer) {
  const std::string grown =
      fmt::format("{} were newly mapped in {}", bytes_text(answer.growth.mapped_bytes), span_text(answer));
  const std::string most =
      answer.unexplained.empty() ? "" : fmt::format(" Most of it: {}.", answer.unexplained.front().reason);
  const std::string lost = answer.lost.value_or(0) != 0 ? fmt::format(" {} were lost, it may be theirs.",
                                                                      count_text(*answer.lost, "call"))
                                                        : "";
  const std::string left_out = answer.totals.left_out != 0
                                   ? fmt::format(" {} were left out as asked, it may be theirs.",
                                                 count_text(answer.totals.left_out, "call"))
                                   : "";
  const std::string why = answer.events == 0 ? "no watched instruction was hit"
                                             : fmt::format("none of the {} made any of it",
                                                           count_text(answer.events, "captured call"));
  set(answer, "no-site", fmt::format("{}, and {}.{}{}{}", grown, why, most, lost, left_out));
}

/// Reserved before the trace, and given permissions now by a call that is not watched.
void judge_made_usable(Answer& answer, const Attribution& attribution) {
  const std::int64_t grew = answer.growth.rss_anon.value_or(0);
  const std::string resident =
      grew > 0 ? fmt::format(" RssAnon grew by {}.", bytes_text(static_cast<std::uint64_t>(grew))) : "";
  const RegionAnswer* largest = answer.regions.empty() ? nullptr : &answer.regions.front();
  const std::string where =
      largest == nullptr
          ? ""
          : fmt::format(" Largest: {:x}-{:x} ({}).", largest->range.start, largest->range.end, largest->kind);
  set(answer, "reservation",
      fmt::format("no mmap was made for {} of the {} that became usable in {} ({}): it lies inside "
                  "reservations from before "
                  "the trace (a glibc arena, a runtime's heap), opened by mprotect.{}{} To see who opens it: "
                  "--syscalls "
                  "mmap,munmap,mremap,brk,mprotect.",
                  bytes_text(attribution.made_usable_bytes), bytes_text(answer.growth.mapped_bytes),
                  span_text(answer), share_of(attribution.made_usable_bytes, answer.growth.mapped_bytes),
                  where, resident));
}

/// New addresses, but as many old ones went, and nothing more is resident.
bool as_much_went(const Growth& growth) {
  const bool net = growth.mapped_bytes >= growth.unmapped_bytes + least_mapped_growth;
  return !net && growth.rss_anon.value_or(0) < static_cast<std::int64_t>(least_resident_growth);
}

void judge_exchange(Answer& answer, const Group& most) {
  const Growth& growth = answer.growth;
  const std::string resident = growth.rss_anon ? signed_bytes_text(*growth.rss_anon) : "an unknown amount";
  set(answer, "churn",
      fmt::format(
          "nothing grew on the whole: {} were newly mapped in {}, {} that were mapped before are not any "
          "more, "
          "RssAnon changed by {}. Most of the new memory is {}'s: {}. A leak beside something that was given "
          "back looks the same: trace again for longer to tell.",
          bytes_text(growth.mapped_bytes), span_text(answer), bytes_text(growth.unmapped_bytes), resident,
          who(*most.first), amount(answer, most)));
}

void judge_mapped(Answer& answer, const Attribution& attribution) {
  const std::uint64_t mapped = answer.growth.mapped_bytes;
  if (attribution.made_usable_bytes > mapped / 2) return judge_made_usable(answer, attribution);
  const std::vector<Group> groups = group_rows(answer);
  if (groups.empty()) return judge_unexplained(answer);
  const Group& most = groups.front();
  if (as_much_went(answer.growth)) return judge_exchange(answer, most);
  if (attribution.inaccessible_bytes >= mapped / 10 * 9) {
    set(answer, "reservation",
        fmt::format(
            "{} reserves addresses: {}, without access (PROT_NONE), which costs no memory until it is used.",
            who(*most.first), amount(answer, most)));
  } else if (attribution.file_bytes >= mapped / 10 * 9) {
    set(answer, "file-pages",
        fmt::format("{} maps files: {}; their pages count as RssFile and the kernel can drop them.{}",
                    who(*most.first), amount(answer, most),
                    most.first->culprit && most.first->culprit->loads_library
                        ? " It loads libraries (dlopen)."
                        : ""));
  } else if (most.verdict == "malloc") {
    set(answer, "malloc", malloc_text(answer, most));
  } else if (most.verdict == "retention") {
    set(answer, "retention", retention_text(answer, most));
  } else if (most.verdict == "thread-stacks") {
    set(answer, "thread-stacks", thread_stacks_text(answer, most));
  } else if (most.verdict == "plateau") {
    set(answer, "plateau", plateau_text(answer, most));
  } else if (most.verdict == "churn" || most.verdict == "pass-through") {
    set(answer, most.verdict,
        fmt::format("nothing is seen to stay: the {} newly mapped were mapped at the very end, and {} {} "
                    "through {} before; "
                    "{}.",
                    bytes_text(mapped), bytes_text(most.mapped), "went", who(*most.first),
                    traffic_text(answer)));
  } else {
    set(answer, "leak", leak_text(answer, most));
  }
  const std::uint64_t rest = answer.growth.unexplained_bytes;
  if (rest >= mapped / 20 && !answer.unexplained.empty())
    answer.verdict_text +=
        fmt::format(" {} ({}) is not explained by any captured call: {}.", bytes_text(rest),
                    share_of(rest, mapped), answer.unexplained.front().reason);
}

void judge_without_growth(Answer& answer) {
  std::uint64_t live = 0;
  for (const StackAnswer& row : answer.stacks) live += row.live_bytes;
  const std::string text = fmt::format(
      "the trace has no two snapshots of the regions, so what grew is unknown; {}", traffic_text(answer));
  if (answer.events == 0)
    set(answer, "no-site", text + ".");
  else
    set(answer, "", fmt::format("{}, {} of it are mapped still as far as was seen.", text, bytes_text(live)));
}

}  // namespace

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

void judge(Answer& answer, const Attribution& attribution) {
  for (StackAnswer& row : answer.stacks) {
    row.culprit = find_culprit(row.stack, makes_mappings(row.syscall));
    // Without growth nothing can be said of a stack's either.
    if (answer.growth.known) row.verdict = stack_class(row, answer.seconds);
  }
  if (!answer.growth.known)
    judge_without_growth(answer);
  else if (answer.growth.mapped_bytes < least_mapped_growth)
    judge_nothing_mapped(answer);
  else
    judge_mapped(answer, attribution);
}

}  // namespace whomap
