// SPDX-License-Identifier: Apache-2.0
// Two passes over the file: the first keeps stacks and the outermost snapshots, the second runs the events
// through the ledger up to the last snapshot. Memory grows with stacks, threads and live intervals, not
// events.
#include "core/match/match.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>

#include <fmt/format.h>

#include "core/match/attribution.h"
#include "core/match/call_counts.h"
#include "core/match/event_order.h"
#include "core/match/event_pipe.h"
#include "core/match/history.h"
#include "core/match/ledger.h"
#include "core/match/quantity.h"
#include "core/match/verdict.h"
#include "core/process/syscalls.h"
#include "core/regions/range_set.h"

namespace whomap {
namespace {

/// How much later than its effect a return may be seen: GDB hands over the stops of many threads one by one.
constexpr std::uint64_t late_return_ns = 100'000'000;

constexpr std::int64_t nr_munmap = 11;

/// Programs are loaded at random addresses: two processes have in common what the kernel maps for all, or
/// they are one.
bool another_process(const Snapshot& before, const Snapshot& after) {
  std::vector<AddressRange> own;
  for (const Region& region : before.regions)
    if (region.vma.name != "[vsyscall]") own.push_back(region.vma.range());
  const RangeSet addresses = make_range_set(std::move(own));
  return !addresses.empty() && intersect(addresses, mapped_addresses(after)).empty();
}

/// Events between fetching what an event needs and working on it: enough for memory to answer.
constexpr std::size_t look_ahead = 8;

class Matcher {
 public:
  Matcher(const std::string& path, const MatchOptions& options) : path_(path), options_(options) {}

  Result<Answer> run() {
    if (std::error_code unknown; std::filesystem::is_fifo(path_, unknown))
      return fail(ErrorCode::input_unreadable, fmt::format("{} is a pipe, and a trace is read twice", path_),
                  "save the trace in a file");
    if (auto read = read_frame(); !read) return tl::make_unexpected(read.error());
    if (auto read = read_events(); !read) return tl::make_unexpected(read.error());
    return answer();
  }

 private:
  /// Everything but the events.
  Result<void> read_frame() {
    TraceVisitor visitor;
    visitor.header = [&](const TraceHeader& header) { answer_.header = header; };
    visitor.stack = [&](Stack stack) {
      const std::uint32_t id = stack.id;
      stacks_.insert_or_assign(id, std::move(stack));
    };
    visitor.snapshot = [&](Snapshot snapshot) {
      if (!before_)
        before_ = std::move(snapshot);
      else
        after_ = std::move(snapshot);
    };
    visitor.lost = [&](const LostRecord& lost) {
      lost_records_ = lost_records_.value_or(0) + lost.count;
      lost_reasons_.push_back(fmt::format("{} lost: {}", count_text(lost.count, "call"), lost.reason));
    };
    visitor.note = [&](const std::string& text) { answer_.notes.push_back(text); };
    visitor.end = [&](const TraceEnd& end) {
      answer_.totals = end;
      answer_.complete = true;
    };
    if (auto read = read_trace(path_, visitor); !read) return tl::make_unexpected(read.error());
    if (!options_.regions.empty())
      if (auto taken = take_regions(); !taken) return taken;
    return use_history();
  }

  /// A trace that was cut has its last snapshot, or both, from the watch.
  Result<void> use_history() {
    if (!options_.history || options_.history->snapshots.empty()) return {};
    const RegionHistory& history = *options_.history;
    if (auto same = check_history(history, answer_.header.target); !same) return same;
    answer_.notes.insert(answer_.notes.end(), history.notes.begin(), history.notes.end());
    const std::uint64_t start = answer_.header.start_ns;
    if (!before_) {
      before_ = history.snapshots.front();
      for (const Snapshot& each : history.snapshots)
        if (each.time_ns <= start) before_ = each;
      answer_.notes.push_back(fmt::format("the first snapshot is that of {}", history.name));
    }
    if (!after_ && history.snapshots.back().time_ns > before_->time_ns) {
      after_ = history.snapshots.back();
      answer_.notes.push_back(fmt::format("the last snapshot is that of {}", history.name));
    }
    return {};
  }

  /// The snapshots from elsewhere instead of the trace's own.
  Result<void> take_regions() {
    const std::vector<Snapshot>& regions = options_.regions;
    if (!before_ && after_) before_ = std::move(after_);
    own_before_ = before_.has_value();
    if (!before_ && regions.size() > 1) before_ = regions.front();
    after_ = regions.back();
    if (before_ && another_process(*before_, *after_))
      return fail(ErrorCode::input_kind,
                  fmt::format("{} has none of the mappings of pid {}", options_.regions_name,
                              answer_.header.target.pid),
                  "give the regions of the traced process, saved before it ended");
    // When they were taken is known only where they have a time, and the trace's clock is the same.
    const bool comparable = answer_.header.clock == monotonic_clock;
    if (before_ && !comparable) before_->time_ns = 0;
    after_time_known_ = comparable && after_->time_ns != 0;
    if (!after_time_known_) after_->time_ns = std::numeric_limits<std::uint64_t>::max();
    return {};
  }

  Result<void> read_events() {
    const Plan& plan = answer_.header.plan;
    const bool sane_page = plan.page_size >= 4096 && (plan.page_size & (plan.page_size - 1)) == 0;
    ledger_ = Ledger(sane_page ? plan.page_size : 4096);
    if (before_) {
      for (const Region& region : before_->regions)
        if (region.vma.name == "[heap]") ledger_.set_break(region.vma.end);
    }
    const std::uint64_t until = after_ ? after_->time_ns : std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t read_for = after_ ? after_->duration_ns : 0;
    const auto apply = [&](const TraceEvent& event) {
      if (event.call.exit_ns <= until) return ledger_.apply(event.call, event.stack);
      ++after_last_snapshot_;
      // The snapshot may show it all the same: reading took time, and a thread that waits for the tracer has
      // its mapping before its return is timed.
      if (event.call.exit_ns - until <= read_for + late_return_ns)
        ledger_.apply_if_free(event.call, event.stack);
    };
    Result<TraceReadSummary> summary;
    pipe_events([&](const EventSink& put) { summary = read_in_order(put); },
                [&](std::span<const TraceEvent> events) {
                  for (std::size_t i = 0; i < events.size(); ++i) {
                    if (i + look_ahead < events.size()) ledger_.prefetch(events[i + look_ahead].call);
                    apply(events[i]);
                  }
                });
    if (!summary) return tl::make_unexpected(summary.error());
    answer_.read = std::move(*summary);
    answer_.events = calls_.events();
    answer_.failed_calls = calls_.failed();
    return {};
  }

  /// On the thread that reads; counting is done here too, as the ledger has more to do than the reader.
  Result<TraceReadSummary> read_in_order(const EventSink& put) {
    EventOrder order(put);
    TraceVisitor visitor;
    // Decoded a second time only so that this pass judges every line.
    visitor.stack = [](const Stack&) {};
    visitor.snapshot = [](const Snapshot&) {};
    visitor.end = [](const TraceEnd&) {};
    visitor.lost = [](const LostRecord&) {};
    visitor.note = [](const std::string&) {};
    visitor.unknown = [&](const nlohmann::ordered_json&) { ++unknown_records_; };
    visitor.event = [&](const TraceEvent& event) {
      calls_.add(event);
      order.push(event);
    };
    auto summary = read_trace(path_, visitor);
    order.flush();
    late_ = order.late();
    return summary;
  }

  Answer answer() {
    Attribution attribution;
    if (after_ && !after_time_known_) after_->time_ns = std::max(calls_.last_ns(), answer_.totals.end_ns);
    if (before_ && before_->time_ns == 0 && answer_.events != 0) before_->time_ns = calls_.first_ns();
    if (before_ && after_) {
      attribution = attribute(*before_, *after_, ledger_);
      answer_.threads_before = before_->threads;
      answer_.threads = after_->threads;
    } else {
      attribution.growth.known = false;
      attribution.rows = live_only(ledger_, after_ ? &*after_ : nullptr);
    }
    answer_.growth = attribution.growth;
    answer_.regions = std::move(attribution.regions);
    answer_.unexplained = std::move(attribution.unexplained);
    answer_.resident = std::move(attribution.resident);
    answer_.seconds = seconds();
    if (!answer_.threads && before_) answer_.threads = before_->threads;
    if (answer_.complete)
      answer_.lost = std::max(answer_.totals.lost, lost_records_.value_or(0));
    else
      answer_.lost = lost_records_;
    if (answer_.lost.value_or(0) != 0)
      for (Unexplained& part : answer_.unexplained)
        if (part.reason.find("captured") != std::string::npos)
          part.reason += fmt::format(" ({} lost)", count_text(*answer_.lost, "call"));
    for (const RowCounts& counts : calls_.rows()) answer_.stacks.push_back(row(counts, attribution));
    std::sort(answer_.stacks.begin(), answer_.stacks.end(),
              [](const StackAnswer& left, const StackAnswer& right) {
                if (left.growth_bytes != right.growth_bytes) return left.growth_bytes > right.growth_bytes;
                if (left.live_bytes != right.live_bytes) return left.live_bytes > right.live_bytes;
                if (left.mapped_bytes != right.mapped_bytes) return left.mapped_bytes > right.mapped_bytes;
                return std::pair(left.stack.id, left.syscall) < std::pair(right.stack.id, right.syscall);
              });
    const bool with_history = options_.history && !options_.history->snapshots.empty() && before_ && after_ &&
                              options_.regions.empty();
    if (with_history) add_history(answer_, *before_, *after_, *options_.history);
    const auto own_roles = options_.known.frames.empty() ? nullptr : FrameRoles::with(options_.known.frames);
    judge(answer_, attribution, own_roles ? *own_roles : FrameRoles::shipped());
    if (answer_.watched) answer_.verdict_text += " " + history_text(*answer_.watched);
    add_advice();
    add_notes(attribution);
    return std::move(answer_);
  }

  [[nodiscard]] double seconds() const {
    if (answer_.header.clock == order_clock) return 0;
    std::uint64_t from =
        before_ && after_ ? before_->time_ns : std::min(answer_.header.start_ns, calls_.first_ns());
    if (from == 0) from = calls_.first_ns();
    std::uint64_t to = calls_.last_ns();
    if (before_ && after_ && (options_.regions.empty() || after_time_known_))
      to = after_->time_ns;
    else if (answer_.complete)
      to = std::max(to, answer_.totals.end_ns);
    return to > from ? static_cast<double>(to - from) / 1e9 : 0;
  }

  StackAnswer row(const RowCounts& counts, const Attribution& attribution) const {
    const RowKey key = counts.key;
    StackAnswer row;
    if (const auto known = stacks_.find(key.stack); known != stacks_.end()) {
      row.stack = known->second;
    } else {
      row.stack.id = key.stack;
      row.stack.truncated = "the trace has no record of this stack";
    }
    row.syscall = key.number;
    row.site = counts.site;
    row.count = counts.count;
    row.failed = counts.failed;
    row.mapped_bytes = counts.mapped_bytes;
    row.unmapped_bytes = counts.unmapped_bytes;
    row.first_ns = counts.first_ns;
    row.last_ns = counts.last_ns;
    row.threads = counts.threads;
    if (const auto found = attribution.rows.find(key); found != attribution.rows.end()) {
      const RowGrowth& growth = found->second;
      row.live_bytes = growth.live_bytes;
      row.growth_bytes = growth.growth_bytes;
      row.live_calls = growth.live_calls;
      row.growth_by_time = growth.by_time;
      if (growth.resident_bytes) row.resident_bytes = whole_bytes(*growth.resident_bytes);
      row.resident_exact = growth.resident_exact && growth.growth_bytes != 0;
    } else if (attribution.growth.known) {
      row.resident_bytes = 0;
    }
    if (attribution.growth.mapped_bytes != 0)
      row.share =
          static_cast<double>(row.growth_bytes) / static_cast<double>(attribution.growth.mapped_bytes);
    if (answer_.seconds > 0)
      row.bytes_per_minute = static_cast<double>(row.growth_bytes) * 60 / answer_.seconds;
    return row;
  }

  /// Causes are looked for where there is growth; where there is none, in what a report shows.
  void add_advice() {
    constexpr std::size_t without_growth = 100;
    const SignatureFile& known = options_.known;
    std::map<std::uint32_t, std::vector<std::string>> kinds;
    for (const RegionAnswer& region : answer_.regions)
      for (const std::uint32_t stack : region.stacks) kinds[stack].push_back(region.kind);
    for (std::size_t i = 0; i < answer_.stacks.size(); ++i) {
      StackAnswer& row = answer_.stacks[i];
      if (row.growth_bytes != 0 || i < without_growth)
        row.advice = known_causes(known.stacks, row.stack, row.verdict, kinds[row.stack.id]);
    }
    if (!after_) return;
    std::map<std::uint64_t, const Region*> by_start;
    for (const Region& region : after_->regions) by_start[region.vma.start] = &region;
    for (RegionAnswer& each : answer_.regions)
      if (const auto found = by_start.find(each.range.start); found != by_start.end())
        each.advice = known_region_causes(known.regions, *found->second, each.kind);
    answer_.advice = known_process_causes(known.processes, *after_, answer_.verdict_class);
  }

  void add_notes(const Attribution& attribution) {
    std::vector<std::string>& notes = answer_.notes;
    notes.insert(notes.end(), lost_reasons_.begin(), lost_reasons_.end());
    if (answer_.read.cut)
      notes.emplace_back("the trace is cut: it has no end record, what came later is missing");
    if (answer_.read.damaged_lines != 0) {
      std::string where;
      for (const std::uint64_t line : answer_.read.damaged_line_numbers)
        where += fmt::format("{}{}", where.empty() ? "" : ", ", line);
      notes.push_back(fmt::format(
          "{} left out (line {}{})", count_text(answer_.read.damaged_lines, "damaged record"), where,
          answer_.read.damaged_lines > answer_.read.damaged_line_numbers.size() ? ", ..." : ""));
    }
    if (unknown_records_ != 0)
      notes.push_back(
          fmt::format("{} of types that this whomap does not know", count_text(unknown_records_, "record")));
    add_plan_notes();
    const LedgerCounts& counts = ledger_.counts();
    if (counts.conflicts != 0)
      notes.push_back(fmt::format("{} got addresses whose unmapping came later or was not captured",
                                  count_text(counts.conflicts, "call")));
    if (counts.implausible != 0)
      notes.push_back(fmt::format("{} left out: the result cannot be that call's",
                                  count_text(counts.implausible, "call")));
    if (counts.unknown_break != 0)
      notes.push_back(
          fmt::format("{} before the program break was known", count_text(counts.unknown_break, "brk call")));
    if (late_ != 0) notes.push_back(fmt::format("{} far out of order", count_text(late_, "event")));
    if (attribution.unsized_segments != 0)
      notes.push_back(
          fmt::format("{} not found in the regions: their size is unknown",
                      count_text(attribution.unsized_segments, "attached shared memory segment")));
    for (const auto* snapshot : {&before_, &after_})
      if (*snapshot && !(*snapshot)->without_smaps.empty()) {
        notes.push_back("resident sizes of regions are unknown: " + (*snapshot)->without_smaps);
        break;
      }
    for (const auto* snapshot : {&before_, &after_})
      if (*snapshot && !(*snapshot)->unparsed.empty())
        notes.push_back(fmt::format("{} of the regions could not be read",
                                    count_text((*snapshot)->unparsed.size(), "line")));
    if (!options_.regions.empty() && !after_time_known_)
      notes.push_back(
          fmt::format("the regions{} are those of {}; that they are this process's, and when they were "
                      "taken, cannot be checked",
                      own_before_ ? " afterwards" : "", options_.regions_name));
    if (answer_.header.clock == order_clock)
      notes.emplace_back("the log has no times: rates, and whether it still grew at the end, are not known");
    if (attribution.unsized_calls != 0)
      notes.push_back(fmt::format("{} of unknown length taken to reach up to the next known address",
                                  count_text(attribution.unsized_calls, "mapping")));
    const std::uint64_t was = before_ ? total_size(mapped_addresses(*before_)) : 0;
    if (!options_.regions.empty() && answer_.growth.known && answer_.growth.unmapped_bytes > was / 2)
      notes.push_back(
          fmt::format("{} shows less than half of what was mapped before: it may be a part of "
                      "what was saved",
                      options_.regions_name));
    if (counts.unknown_arguments != 0)
      notes.push_back(fmt::format("{} without arguments: what they unmapped or moved is not known",
                                  count_text(counts.unknown_arguments, "call")));
    if (after_last_snapshot_ != 0)
      notes.push_back(fmt::format("{} after the last snapshot", count_text(after_last_snapshot_, "event")));
  }

  /// What the plan left out bounds what the events can explain.
  void add_plan_notes() {
    const Plan& plan = answer_.header.plan;
    const auto left_out = std::count_if(plan.sites.begin(), plan.sites.end(), [](const Site& site) {
      // A caller of a dispatcher is seen at the dispatcher.
      return site.watch == WatchKind::none && site.kind != NumberKind::caller_constant;
    });
    if (left_out != 0)
      answer_.notes.push_back(fmt::format("not watched: {} of {} (whomap plan says why)",
                                          count_text(static_cast<std::uint64_t>(left_out)),
                                          count_text(plan.sites.size(), "site")));
    const bool unmaps = std::find(plan.watched.begin(), plan.watched.end(), nr_munmap) != plan.watched.end();
    if (!plan.watched.empty() && !unmaps)
      answer_.notes.emplace_back(
          "munmap was not watched: memory that was unmapped and mapped again may be given to the "
          "wrong stack");
  }

  const std::string& path_;
  const MatchOptions& options_;
  Answer answer_;
  std::unordered_map<std::uint32_t, Stack> stacks_;
  CallCounts calls_;
  std::optional<Snapshot> before_, after_;
  std::optional<std::uint64_t> lost_records_;
  std::vector<std::string> lost_reasons_;
  Ledger ledger_;
  bool own_before_ = false;       ///< the trace has a first snapshot itself
  bool after_time_known_ = true;  ///< after_->time_ns is when it was taken
  std::uint64_t unknown_records_ = 0, after_last_snapshot_ = 0, late_ = 0;
};

}  // namespace

Result<Answer> match_trace(const std::string& path) {
  return match_trace(path, {});
}

Result<Answer> match_trace(const std::string& path, const MatchOptions& options) {
  return Matcher(path, options).run();
}

ExitStatus answer_status(const Answer& answer) {
  const std::string& verdict = answer.verdict_class;
  if (verdict.empty() || verdict == "not-growing" || verdict == "no-site" || verdict == "churn" ||
      verdict == "pass-through")
    return ExitStatus::negative;
  return ExitStatus::done;
}

}  // namespace whomap
