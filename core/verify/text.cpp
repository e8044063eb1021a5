// SPDX-License-Identifier: Apache-2.0
#include "core/verify/text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/report/layout.h"
#include "core/verify/amount.h"
#include "core/verify/plot.h"

namespace whomap {
namespace {

using Field = std::optional<std::uint64_t> MemoryUse::*;

struct Row {
  const char* name;
  Field field;
  bool bytes;
};

constexpr Row memory_rows[] = {
    {"VmRSS", &MemoryUse::rss, true},          {"RssAnon", &MemoryUse::rss_anon, true},
    {"RssFile", &MemoryUse::rss_file, true},   {"RssShmem", &MemoryUse::rss_shmem, true},
    {"VmSwap", &MemoryUse::swap, true},        {"VmPTE", &MemoryUse::page_tables, true},
    {"LazyFree", &MemoryUse::lazy_free, true}, {"mappings", &MemoryUse::mappings, false},
    {"threads", &MemoryUse::threads, false},   {"memfd, shm", &MemoryUse::held, true},
};

std::string value_text(const std::optional<std::uint64_t>& value, bool bytes) {
  if (!value) return "?";
  return bytes ? bytes_text(*value) : count_text(*value);
}

std::string change_text(const std::optional<std::uint64_t>& from, const std::optional<std::uint64_t>& to,
                        bool bytes) {
  if (!from || !to) return "?";
  const std::uint64_t size = *to >= *from ? *to - *from : *from - *to;
  if (size == 0) return "0";
  return (*to > *from ? "+" : "-") + (bytes ? bytes_text(size) : count_text(size));
}

/// Up to four points side by side, else the three that the verdict is about.
std::vector<const Measurement*> shown_points(const std::vector<const Measurement*>& points) {
  constexpr std::size_t most = 4;
  if (points.size() <= most) return points;
  return {points.front(), points[middle_of(points.size())], points.back()};
}

std::string table(const VerifyRun& run) {
  const auto all = points_of(run);
  const auto points = shown_points(all);
  if (points.empty()) return "  nothing was measured\n";
  constexpr int name_width = 12;
  constexpr int cell = 12;
  const Measurement& middle = *all[middle_of(all.size())];
  const bool judged = all.size() >= 3;
  std::string text = fmt::format("  {:<{}}", "point", name_width);
  for (const Measurement* point : points) {
    const auto number = std::find(all.begin(), all.end(), point) - all.begin() + 1;
    text += fmt::format("{:>{}}", fmt::format("{}{}", number, judged && point == &middle ? " (middle)" : ""),
                        cell);
  }
  if (judged) text += fmt::format("{:>{}}", "since middle", cell + 2);
  text += fmt::format("\n  {:<{}}", "time", name_width);
  for (const Measurement* point : points) text += fmt::format("{:>{}}", seconds_text(point->seconds), cell);
  text += '\n';
  const auto row = [&](const char* name, auto value, bool bytes) {
    text += fmt::format("  {:<{}}", name, name_width);
    for (const Measurement* point : points)
      text += fmt::format("{:>{}}", value_text(value(*point), bytes), cell);
    if (judged)
      text += fmt::format("{:>{}}", change_text(value(middle), value(*all.back()), bytes), cell + 2);
    text += '\n';
  };
  for (const Row& each : memory_rows) {
    const bool rare = each.field == &MemoryUse::held;
    if (rare && std::all_of(all.begin(), all.end(),
                            [&](const Measurement* at) { return at->memory.held.value_or(0) == 0; }))
      continue;
    row(
        each.name, [&](const Measurement& at) { return at.memory.*each.field; }, each.bytes);
  }
  using Count = std::optional<std::uint64_t>;
  if (run.tree)
    row(
        "processes", [](const Measurement& at) { return Count(at.processes); }, false);
  if (!run.exercise.command.empty())
    row(
        "operations",
        [&](const Measurement& at) { return Count(at.succeeded * run.exercise.operations_per_run); }, false);
  return text;
}

std::string heading(const VerifyRun& run) {
  std::string text = fmt::format(
      "pid {} ({}){}, {} {} apart", run.target.pid, run.target.comm, run.tree ? " and its children" : "",
      count_text(points_of(run).size(), "point"), seconds_text(run.interval_seconds));
  if (!run.exercise.command.empty())
    text += fmt::format(
        ", {}{}", count_text(run.exercise.succeeded, "exercise"),
        run.exercise.failed > 0 ? fmt::format(" and {} failed", count_text(run.exercise.failed)) : "");
  return text;
}

std::string trends_text(const Judgement& judgement, const VerifyTextOptions& options) {
  std::string text;
  for (const auto& [kind, trend] : judgement.trends) {
    if (trend.state == TrendState::unknown ||
        (trend.state == TrendState::flat && trend.change == 0 && kind != MemoryKind::anonymous))
      continue;
    const char* const state = trend.state == TrendState::flat   ? "flat"
                              : trend.state == TrendState::grew ? "grew"
                                                                : "unclear";
    text += fit(fmt::format("  {}: ", name_of(kind)), 20) +
            wrap(fmt::format("{}, {}", state, rate_text(trend)), options.width, 20, 20);
  }
  return text;
}

void add_variant(std::string& text, const char* name, const VerifyRun& run, const Judgement& judgement,
                 const JudgeLimits& limits, const VerifyTextOptions& options) {
  const Paint paint(options.color);
  text +=
      paint.bold(fmt::format("{}: ", name)) + wrap(printable(heading(run)), options.width, 2, 9) + table(run);
  if (options.plot)
    if (const std::string drawn = plot(run, limits.growth.max_delta, {options.width, 8}); !drawn.empty())
      text += paint.dim("  anonymous memory (RssAnon + VmSwap):") + "\n" + drawn;
  text += trends_text(judgement, options);
  for (const auto* notes : {&run.notes, &judgement.notes})
    for (const std::string& note : *notes) text += "  note: " + wrap(printable(note), options.width, 8, 8);
  text += '\n';
}

std::string painted(VerdictClass kind, std::string_view word, bool color) {
  const Paint paint(color);
  switch (kind) {
    case VerdictClass::fixed: return paint.green(word);
    case VerdictClass::inconclusive:
    case VerdictClass::interrupted: return paint.yellow(word);
    default: return paint.red(word);
  }
}

}  // namespace

std::string to_text(const VerifyInput& input, const VerifyOutcome& outcome, const JudgeLimits& limits,
                    const VerifyTextOptions& options) {
  std::string text;
  if (input.baseline && outcome.baseline)
    add_variant(text, "baseline", input.baseline->run, *outcome.baseline, limits, options);
  if (input.control && outcome.control)
    add_variant(text, "control", input.control->run, *outcome.control, limits, options);
  add_variant(text, "subject", input.subject.run, outcome.subject, limits, options);
  for (std::size_t i = 0; i < outcome.effects.size(); ++i) {
    const EffectFinding& finding = input.subject.effects->findings[i];
    const char* const state = outcome.effects[i].state == EffectState::passed   ? "yes"
                              : outcome.effects[i].state == EffectState::failed ? "no"
                                                                                : "not proven";
    text += wrap(printable(fmt::format("{}: {}: {}", finding.kind == EffectKind::gone ? "gone" : "present",
                                       state, outcome.effects[i].text)),
                 options.width, 2);
  }
  if (!outcome.effects.empty()) text += '\n';
  return text + ci_line(outcome.verdict, options.color);
}

std::string ci_line(const Verdict& verdict, bool color) {
  return fmt::format("whomap verify: {}: {}{}\n", painted(verdict.kind, name_of(verdict.kind), color),
                     printable(verdict.text), verdict.remedy.empty() ? "" : "; " + printable(verdict.remedy));
}

std::string point_text(const Measurement& point, bool exercised) {
  std::string text = seconds_text(point.seconds) + ":";
  for (const Row& row : memory_rows)
    if (row.bytes && (point.memory.*row.field).value_or(row.field == &MemoryUse::held ? 0 : 1) != 0)
      text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", row.name,
                          value_text(point.memory.*row.field, true));
  if (exercised) text += fmt::format(", {}", count_text(point.succeeded + point.failed, "exercise"));
  return text;
}

}  // namespace whomap
