// SPDX-License-Identifier: Apache-2.0
// The report for people: the answer first, then what it stands on. Every name that comes from the target goes
// through printable().
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "core/match/culprit.h"
#include "core/match/quantity.h"
#include "core/match/shape_text.h"
#include "core/process/syscalls.h"
#include "core/report/cause_text.h"
#include "core/report/layout.h"
#include "core/report/region_rows.h"
#include "core/report/report.h"

namespace whomap {
namespace {

class TextReport {
 public:
  TextReport(const Answer& answer, const TextOptions& options)
      : answer_(answer),
        options_(options),
        paint_(options.color),
        width_(static_cast<std::size_t>(std::max(options.width, 40))),
        causes_(paint_, width_) {}

  std::string run() {
    verdict();
    facts();
    stacks();
    regions();
    unexplained();
    resident();
    notes();
    return std::move(out_);
  }

 private:
  void verdict() {
    const std::string& verdict = answer_.verdict_class;
    const std::string word = verdict.empty() ? "UNKNOWN" : upper(verdict);
    const std::string painted = verdict == "leak" || verdict == "malloc" || verdict == "thread-stacks"
                                    ? paint_.red(word)
                                : answer_status(answer_) == ExitStatus::negative ? paint_.green(word)
                                                                                 : paint_.yellow(word);
    out_ += painted + ": " + wrap(printable(answer_.verdict_text), width_, 0, word.size() + 2) + "\n";
  }

  void fact(std::string_view name, const std::string& text) {
    out_ += paint_.dim(fit(name, 8)) + wrap(printable(text), width_, 8, 8);
  }

  void facts() {
    const TargetIdentity& target = answer_.header.target;
    // Both names: they differ more often than one thinks (redis-server runs /usr/bin/redis-check-rdb).
    const std::string program =
        target.exe.empty() ? target.comm : fmt::format("{} ({})", target.comm, target.exe);
    const std::string pid =
        target.pid != 0 ? fmt::format("pid {}", target.pid) : "a process that the log does not name";
    fact("target", fmt::format("{}{}{}{}", pid, program.empty() ? "" : ", ", program,
                               answer_.threads ? ", " + count_text(*answer_.threads, "thread") : ""));
    std::string trace = fmt::format("{}{}: {}, {} failed, {}",
                                    answer_.seconds > 0 ? seconds_text(answer_.seconds) : "no times",
                                    answer_.header.engine.empty() ? "" : " with " + answer_.header.engine,
                                    count_text(answer_.events, "call"), count_text(answer_.failed_calls),
                                    answer_.lost ? count_text(*answer_.lost) + " lost" : "losses unknown");
    if (answer_.totals.mispaired != 0)
      trace += fmt::format(", {} mispaired", count_text(answer_.totals.mispaired));
    if (answer_.totals.left_out != 0)
      trace += fmt::format(", {} left out as asked", count_text(answer_.totals.left_out));
    if (answer_.totals.stopped_ms)
      trace += fmt::format("; the target stood still for {:.1f} ms", *answer_.totals.stopped_ms);
    if (answer_.totals.longest_stop_ms)
      trace += fmt::format("{} longest gap of a thread {:.1f} ms", answer_.totals.stopped_ms ? "," : ";",
                           *answer_.totals.longest_stop_ms);
    fact("trace", trace);
    cost();
    fact("growth", growth());
    for (const Advice& advice : answer_.advice) out_ += causes_.text(advice, "the top");
    out_ += '\n';
  }

  /// What the trace itself took from the target's threads.
  void cost() {
    const TraceEnd& totals = answer_.totals;
    if (!totals.predicted_slowdown || totals.hits == 0 || answer_.seconds <= 0) return;
    const double paused = *totals.predicted_slowdown * answer_.seconds;
    if (answer_.header.engine == "probe")
      return fact(
          "cost",
          fmt::format("no call was stopped; {} at about {:.1f} us each, estimated from their stacks: "
                      "{:.2f} s of the {}",
                      count_text(totals.hits, "record"), paused * 1e6 / static_cast<double>(totals.hits),
                      paused, seconds_text(answer_.seconds)));
    fact("cost", fmt::format("{} of one thread each, about {:.0f} us: {:.2f} s of the {}",
                             count_text(totals.hits, "stop"), paused * 1e6 / static_cast<double>(totals.hits),
                             paused, seconds_text(answer_.seconds)));
  }

  [[nodiscard]] std::string growth() const {
    const Growth& growth = answer_.growth;
    if (!growth.known) return "unknown: the trace has no two snapshots";
    std::string text =
        fmt::format("{} newly mapped, {} of it explained; ", bytes_text(growth.mapped_bytes),
                    share_text(growth.mapped_bytes == 0 ? 0
                                                        : static_cast<double>(growth.explained_bytes) /
                                                              static_cast<double>(growth.mapped_bytes)));
    if (growth.mapped_bytes == 0) text = "nothing newly mapped; ";
    const auto add = [&](std::string_view name, std::optional<std::int64_t> delta, bool always) {
      if (!always && delta.value_or(0) == 0) return;
      if (!text.ends_with("; ")) text += ", ";
      text += fmt::format("{} {}", name, delta ? signed_bytes_text(*delta) : "unknown");
    };
    add("RssAnon", growth.rss_anon, true);
    add("RssFile", growth.rss_file, true);
    add("RssShmem", growth.rss_shmem, false);
    add("swap", growth.swap, false);
    add("page tables", growth.page_tables, false);
    if (growth.unmapped_bytes != 0)
      text += fmt::format("; {} no longer mapped", bytes_text(growth.unmapped_bytes));
    return text;
  }

  void stacks() {
    std::size_t shown = 0;
    for (const StackAnswer& row : answer_.stacks) {
      if (shown == options_.stacks) break;
      // Without growth a stack is worth its space only when no stack has any.
      if (shown != 0 && row.growth_bytes == 0) break;
      ++shown;
      stack(row, shown);
    }
    std::uint64_t rest = 0;
    for (std::size_t i = shown; i < answer_.stacks.size(); ++i) rest += answer_.stacks[i].growth_bytes;
    for (const auto& [module, build_id] : nameless_)
      out_ += wrap(printable(fmt::format("{} has no symbols for some of these frames; its build-id is {}",
                                         module, build_id)),
                   width_, 2);
    if (!nameless_.empty()) out_ += '\n';
    if (answer_.stacks.size() > shown)
      out_ += wrap(fmt::format("{} {} not shown (--format json has all).",
                               count_text(answer_.stacks.size() - shown, "more stack"),
                               rest == 0 ? "without growth" : "with " + bytes_text(rest) + " of growth"),
                   width_, 0) +
              "\n";
  }

  void stack(const StackAnswer& row, std::size_t rank) {
    const MemorySyscall* const known = memory_syscall(row.syscall);
    const std::string call =
        known != nullptr ? std::string(known->name) : fmt::format("system call {}", row.syscall);
    std::string facts = answer_.growth.known
                            ? fmt::format("{}, {}", bytes_text(row.growth_bytes), share_text(row.share))
                            : fmt::format("{} live", bytes_text(row.live_bytes));
    facts += fmt::format(": {}", count_text(row.count, call + " call"));
    if (row.failed != 0) facts += fmt::format(" ({} failed)", count_text(row.failed));
    if (row.growth_bytes != 0 && answer_.seconds > 0)
      facts += fmt::format(", {}/min", bytes_text(whole_bytes(row.bytes_per_minute)));
    if (row.growth_bytes != 0 && row.resident_bytes)
      facts +=
          fmt::format(", {}{} resident", row.resident_exact ? "" : "about ", bytes_text(*row.resident_bytes));
    if (row.threads > 1) facts += fmt::format(", {}", count_text(row.threads, "thread"));
    if (!row.verdict.empty()) facts += fmt::format(" [{}]", row.verdict);
    const std::string number = fmt::format("#{} ", rank);
    out_ += paint_.bold(number) + wrap(facts, width_, 3, number.size());
    frames(row);
    for (const Advice& advice : row.advice) out_ += causes_.text(advice, fmt::format("#{}", rank));
    out_ += '\n';
  }

  void frames(const StackAnswer& row) {
    if (row.stack.frames.empty() && !row.stack.truncated) out_ += "       (no frames)\n";
    for (std::size_t i = 0; i < row.stack.frames.size(); ++i) frame(row, i);
    if (row.stack.truncated)
      out_ += "       " + wrap(printable("the stack ends here: " + *row.stack.truncated), width_, 9, 7);
  }

  void frame(const StackAnswer& row, std::size_t index) {
    constexpr std::size_t indent = 7;
    const Frame& frame = row.stack.frames[index];
    const bool culprit = row.culprit && row.culprit->frame == index;
    const std::string name = printable(frame_name(frame));
    std::string where = printable(place(frame));
    if (!frame.function && !frame.build_id.empty()) nameless_.emplace(module_name(frame), frame.build_id);
    const std::string mark = fmt::format("{}{:>4}  ", culprit ? ">" : " ", index);
    // Name and place share a line when they fit, else the place goes below the name.
    const std::size_t name_columns = std::max<std::size_t>(columns(name), 32);
    const bool one_line =
        indent + name_columns + 2 + columns(where) <= width_ && columns(name) <= name_columns;
    const auto emphasised = [&](const std::string& text) { return culprit ? paint_.bold(text) : text; };
    if (where.empty()) {
      out_ += emphasised(mark + without_newline(wrap(name, width_, indent, indent))) + "\n";
    } else if (one_line) {
      out_ += emphasised(mark + fit(name, name_columns)) + "  " + paint_.dim(where) + "\n";
    } else {
      out_ += emphasised(mark + without_newline(wrap(name, width_, indent + 2, indent))) + "\n";
      out_ += std::string(indent + 2, ' ') +
              paint_.dim(without_newline(wrap(where, width_, indent + 2, indent + 2))) + "\n";
    }
  }

  /// file:line; else the module, where the name does not have it already.
  static std::string place(const Frame& frame) {
    std::string text;
    if (frame.file) {
      text = frame.line ? fmt::format("{}:{}", *frame.file, *frame.line) : *frame.file;
    } else if (frame.function) {
      // A log without a memory map has addresses, which are no offsets.
      if (!frame.module.empty())
        text = frame.run_time || frame.offset == 0
                   ? module_name(frame)
                   : fmt::format("{}+{:#x}", module_name(frame), frame.offset);
    }
    if (frame.inlined) text += text.empty() ? "(inlined)" : " (inlined)";
    if (frame.guessed) text += text.empty() ? "(guessed)" : " (guessed)";
    return text;
  }

  void regions() {
    if (answer_.regions.empty()) return;
    out_ += paint_.bold("Regions that grew") + "\n";
    const std::size_t names = width_ > 66 ? width_ - 66 : 0;
    out_ += paint_.dim(trim_right(fmt::format("  {:<25} {:>9} {:>9} {:>9}  {}", "addresses", "size",
                                              "resident", "explained", "class"))) +
            "\n";
    const std::vector<RegionRow> rows = region_rows(answer_.regions);
    std::size_t shown = 0;
    for (const RegionRow& row : rows) {
      if (shown == options_.regions) break;
      ++shown;
      const RegionAnswer& region = *row.first;
      std::string kind = printable(region.name.empty() ? region.kind : region.kind + " " + region.name);
      const std::string times = row.count > 1 ? fmt::format(" x{}", count_text(row.count)) : "";
      const std::size_t room = names + 6 > times.size() ? names + 6 - times.size() : 0;
      kind = times.empty() ? fit(kind, room) : trim_right(fit(kind, room)) + times;
      out_ += trim_right(fmt::format("  {:<25} {:>9} {:>9} {:>9}  {}",
                                     fmt::format("{:x}-{:x}", region.range.start, region.range.end),
                                     plus(row.size_delta), row.rss_delta ? plus(*row.rss_delta) : "?",
                                     bytes_text(row.explained_bytes), kind)) +
              "\n";
      if (region.watched && std::abs(region.watched->shape.change) >= least_shape_change)
        out_ += wrap(fmt::format("watched for {}: {}", seconds_text(region.watched->seconds),
                                 shape_text(region.watched->shape)),
                     width_, 6, 4)
                    .insert(0, 4, ' ');
    }
    if (rows.size() > shown) {
      std::uint64_t regions = 0;
      std::uint64_t rest = 0;
      for (std::size_t i = shown; i < rows.size(); ++i) {
        regions += rows[i].count;
        rest += static_cast<std::uint64_t>(rows[i].size_delta);
      }
      out_ += fmt::format("  and {} with {}\n", count_text(regions, "more region"), bytes_text(rest));
    }
    region_causes(rows);
    out_ += '\n';
  }

  /// Below the table, each once: with the first region that it is about.
  void region_causes(const std::vector<RegionRow>& rows) {
    for (std::size_t i = 0; i < std::min(options_.regions, rows.size()); ++i)
      for (const Advice& advice : rows[i].first->advice)
        out_ += causes_.text_once(advice, fmt::format("{:x}", rows[i].first->range.start));
  }

  void unexplained() {
    if (!answer_.growth.known || answer_.growth.unexplained_bytes == 0) return;
    out_ += paint_.bold(fmt::format("Not explained by any captured call: {}",
                                    bytes_text(answer_.growth.unexplained_bytes))) +
            "\n";
    for (const Unexplained& part : answer_.unexplained)
      out_ += fmt::format("  {:>9}  ", bytes_text(part.bytes)) + wrap(printable(part.reason), width_, 13, 13);
    out_ += '\n';
  }

  /// Only where most of it is not that of the stacks above.
  void resident() {
    std::int64_t total = 0;
    std::int64_t most = 0;
    for (const ResidentPart& part : answer_.resident) {
      total += part.bytes;
      if (part.where != "in new memory that captured calls mapped") most = std::max(most, part.bytes);
    }
    constexpr std::int64_t worth_saying = 256 << 10;
    if (most < worth_saying || most * 10 < total) return;
    out_ += paint_.bold(fmt::format("Resident memory changed by {}", signed_bytes_text(total))) + "\n";
    for (const ResidentPart& part : answer_.resident)
      if (std::abs(part.bytes) * 100 >= std::abs(total) || std::abs(part.bytes) >= worth_saying)
        out_ += fmt::format("  {:>9}  ", signed_bytes_text(part.bytes)) + wrap(part.where, width_, 13, 13);
    out_ += '\n';
  }

  void notes() {
    for (const std::string& note : answer_.notes) fact("note", note);
    if (answer_.complete && !answer_.totals.reason.empty()) fact("ended", ending(answer_.totals.reason));
  }

  static std::string ending(const std::string& reason) {
    if (reason == "time") return "after the given time";
    if (reason == "hits") return "at the given number of calls";
    if (reason == "slowdown") return "early, at the given slowdown (--max-slowdown)";
    if (reason == "interrupted") return "early, interrupted by the user";
    if (reason == "target-exited") return "early: the process ended";
    if (reason == "target-exec") return "early: the process exec'd another program";
    if (reason == "engine-died") return "early: the tracer died";
    if (reason == "imported") return "with the log";
    if (reason == "by-hand") return "by whomap stop, or with GDB";
    if (reason == "engine-stopped") return "early: the tracer was told to end";
    return reason;
  }

  static std::string plus(std::int64_t bytes) { return signed_bytes_text(bytes); }
  static std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return text;
  }
  static std::string trim_right(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }
  static std::string without_newline(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }

  const Answer& answer_;
  const TextOptions& options_;
  Paint paint_;
  std::size_t width_;
  std::string out_;
  CauseText causes_;
  std::map<std::string, std::string> nameless_;  ///< build-ids of modules with frames that have no name
};

}  // namespace

std::string to_text(const Answer& answer, const TextOptions& options) {
  return TextReport(answer, options).run();
}

}  // namespace whomap
