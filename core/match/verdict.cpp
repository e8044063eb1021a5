// SPDX-License-Identifier: Apache-2.0
#include "core/match/verdict.h"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "core/match/culprit_group.h"
#include "core/match/culprit_text.h"
#include "core/match/quantity.h"
#include "core/match/verdict_text.h"

namespace whomap {
namespace {

void set(Answer& answer, std::string verdict, std::string text) {
  answer.verdict_class = std::move(verdict);
  answer.verdict_text = std::move(text);
}

/// A page fault is no system call.
std::string who_touches(const Answer& answer) {
  const pid_t pid = answer.header.target.pid;
  return fmt::format(
      " Which code touches it, system calls cannot tell; page faults can: perf record -e page-faults -c 1 "
      "--call-graph dwarf -p {} -- sleep 10, then perf report.",
      pid != 0 ? fmt::format("{}", pid) : "PID");
}

/// HotSpot reserves the Java heap when it starts, and commits and touches it later; below 32 GiB where it
/// can, for compressed pointers (src/hotspot/share/memory/virtualspace.cpp, ReservedHeapSpace).
std::string java_heap_text(const Attribution& attribution, const RegionAnswer* region) {
  if (!attribution.has_jvm || region == nullptr || !region->name.empty()) return {};
  if (region->kind != "anonymous" && region->kind != "reservation") return {};
  const bool low = region->range.end <= std::uint64_t{32} << 30;
  return fmt::format(
      " The process runs a JVM (libjvm.so), and this is {} its Java heap: jcmd PID GC.heap_info shows its "
      "addresses, jcmd PID GC.class_histogram what fills it, -Xmx limits it.",
      low ? "where it puts" : "most likely");
}

/// Resident memory grew, mapped memory did not.
bool judge_resident(Answer& answer, const Attribution& attribution) {
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
            "earlier is being touched, no call maps it.{}{}{}",
            bytes_text(static_cast<std::uint64_t>(*answer.growth.rss_anon)), span_text(answer), where,
            java_heap_text(attribution, region), who_touches(answer)));
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

void judge_nothing_mapped(Answer& answer, const Attribution& attribution) {
  if (judge_resident(answer, attribution)) return;
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
                                                 who(answer, *busiest), bytes_text(busiest->growth_bytes),
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

/// Whose mprotect calls there were, or how to see them.
std::string who_opens(const Answer& answer) {
  constexpr std::int64_t nr_mprotect = 10;
  std::map<std::string, std::uint64_t> calls;
  std::uint64_t all = 0;
  for (const StackAnswer& row : answer.stacks) {
    if (row.syscall != nr_mprotect || row.count == 0) continue;
    const bool allocates = row.culprit && row.culprit->allocator_frame && !row.culprit->beyond_stack;
    calls[who(answer, row) + (allocates ? " through " + allocator_text(row) : "")] += row.count;
    all += row.count;
  }
  if (all != 0) {
    const auto most = std::max_element(calls.begin(), calls.end(), [](const auto& left, const auto& right) {
      return left.second < right.second;
    });
    return fmt::format(" {} of the {} come from {}.", count_text(most->second),
                       count_text(all, "mprotect call"), most->first);
  }
  const std::vector<std::int64_t>& watched = answer.header.plan.watched;
  if (std::find(watched.begin(), watched.end(), nr_mprotect) != watched.end())
    return " mprotect was watched, but no call of it was captured: it was made at a place that is not "
           "watched.";
  return " To see who opens it: --syscalls mmap,munmap,mremap,brk,mprotect.";
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
                  "the trace (a glibc arena, a runtime's heap), opened by mprotect.{}{}{}{}",
                  bytes_text(attribution.made_usable_bytes), bytes_text(answer.growth.mapped_bytes),
                  span_text(answer), share_of(attribution.made_usable_bytes, answer.growth.mapped_bytes),
                  where, resident, java_heap_text(attribution, largest), who_opens(answer)));
}

/// New addresses, but as many old ones went, and nothing more is resident.
bool as_much_went(const Growth& growth) {
  const bool net = growth.mapped_bytes >= growth.unmapped_bytes + least_mapped_growth;
  return !net && growth.rss_anon.value_or(0) < static_cast<std::int64_t>(least_resident_growth);
}

void judge_exchange(Answer& answer, const CulpritGroup& most) {
  const Growth& growth = answer.growth;
  const std::string resident = growth.rss_anon ? signed_bytes_text(*growth.rss_anon) : "an unknown amount";
  set(answer, "churn",
      fmt::format(
          "nothing grew on the whole: {} were newly mapped in {}, {} that were mapped before are not any "
          "more, "
          "RssAnon changed by {}. Most of the new memory is {}'s: {}. A leak beside something that was given "
          "back looks the same: trace again for longer to tell.",
          bytes_text(growth.mapped_bytes), span_text(answer), bytes_text(growth.unmapped_bytes), resident,
          who(answer, *most.first), amount(answer, most)));
}

/// New addresses are not all growth where old ones went away: a range that is moved counts as new, and so
/// does what replaces another; and what comes to lie where something was does not.
void add_gone(Answer& answer) {
  const Growth& growth = answer.growth;
  constexpr std::uint64_t worth_saying = 4;
  if (growth.unmapped_bytes < least_mapped_growth ||
      growth.unmapped_bytes < growth.mapped_bytes / worth_saying)
    return;
  const auto net =
      static_cast<std::int64_t>(growth.mapped_bytes) - static_cast<std::int64_t>(growth.unmapped_bytes);
  answer.verdict_text += fmt::format(
      " In the same time {} that were mapped before went away: the net is {}{}. Memory that was moved "
      "(mremap) or "
      "replaced counts as new here, so who makes the net growth may stand further down (live_bytes in "
      "--format json).",
      bytes_text(growth.unmapped_bytes), signed_bytes_text(net),
      growth.rss_anon ? fmt::format(", RssAnon {}", signed_bytes_text(*growth.rss_anon)) : "");
}

/// Beside the mapped growth, memory from before the trace is filled: a runtime's heap, an arena.
void add_touched(Answer& answer, const Attribution& attribution) {
  const std::int64_t touched = attribution.touched_older_bytes;
  const std::int64_t grew = answer.growth.rss_anon.value_or(0);
  if (touched < static_cast<std::int64_t>(least_mapped_growth) * 16 || touched < grew / 4) return;
  const RegionAnswer* const region = most_touched(answer);
  const std::string where =
      region != nullptr ? fmt::format(" (most: {:x}-{:x}, {})", region->range.start, region->range.end,
                                      region->name.empty() ? region->kind : region->name)
                        : "";
  const std::string amount = bytes_text(static_cast<std::uint64_t>(touched));
  const std::string what = "inside memory that was mapped before the trace, and that no call maps";
  if (touched / 4 > static_cast<std::int64_t>(answer.growth.mapped_bytes))
    return set(
        answer, "reservation",
        fmt::format("{} became resident in {} {}{}.{}{} Besides, {}", amount, span_text(answer), what, where,
                    java_heap_text(attribution, region), who_touches(answer), answer.verdict_text));
  answer.verdict_text +=
      fmt::format(" {}, {} became resident {}{}.{}{}",
                  touched > grew / 2 ? "But most of the growth is elsewhere" : "Besides", amount, what, where,
                  java_heap_text(attribution, region), who_touches(answer));
}

void judge_mapped(Answer& answer, const Attribution& attribution) {
  const std::uint64_t mapped = answer.growth.mapped_bytes;
  if (attribution.made_usable_bytes > mapped / 2) return judge_made_usable(answer, attribution);
  const std::vector<GrowthByWay> ways = growth_by_way(answer);
  if (ways.empty()) return judge_unexplained(answer);
  const CulpritGroup& most = ways.front().groups.front();
  if (as_much_went(answer.growth)) return judge_exchange(answer, most);
  // Memory that leads for what is resident is neither untouched nor a file's.
  const bool resident = most.leads_by_resident;
  if (!resident && attribution.inaccessible_bytes >= mapped / 10 * 9) {
    set(answer, "reservation",
        fmt::format(
            "{} reserves addresses: {}, without access (PROT_NONE), which costs no memory until it is used.",
            who(answer, *most.first), amount(answer, most)));
  } else if (!resident && attribution.file_bytes >= mapped / 10 * 9) {
    set(answer, "file-pages",
        fmt::format("{} maps files: {}; their pages count as RssFile and the kernel can drop them.{}",
                    who(answer, *most.first), amount(answer, most),
                    most.first->culprit && most.first->culprit->loads_library
                        ? " It loads libraries (dlopen)."
                        : ""));
  } else if (most.verdict == "malloc") {
    set(answer, "malloc", malloc_text(answer, ways.front()));
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
                    bytes_text(mapped), bytes_text(most.mapped), "went", who(answer, *most.first),
                    traffic_text(answer)));
  } else {
    set(answer, "leak", leak_text(answer, most));
  }
  if (answer.verdict_class != "churn" && answer.verdict_class != "pass-through")
    answer.verdict_text += spread_text(answer, ways);
  add_gone(answer);
  add_touched(answer, attribution);
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

void judge(Answer& answer, const Attribution& attribution, const FrameRoles& roles) {
  for (StackAnswer& row : answer.stacks) {
    row.culprit = find_culprit(row.stack, makes_mappings(row.syscall), roles);
    // Without growth nothing can be said of a stack's either.
    if (answer.growth.known) row.verdict = stack_class(row, answer.seconds);
  }
  if (!answer.growth.known)
    judge_without_growth(answer);
  else if (answer.growth.mapped_bytes < least_mapped_growth)
    judge_nothing_mapped(answer, attribution);
  else
    judge_mapped(answer, attribution);
}

}  // namespace whomap
