// SPDX-License-Identifier: Apache-2.0
#include "core/verify/judge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/amount.h"
#include "core/verify/doubt.h"
#include "core/verify/load.h"
#include "core/verify/mappings.h"

namespace whomap {
namespace {

using Field = std::optional<std::uint64_t> MemoryUse::*;

std::optional<double> change_of(const Measurement& from, const Measurement& to, Field field) {
  const auto& before = from.memory.*field;
  const auto& after = to.memory.*field;
  if (!before || !after) return std::nullopt;
  return static_cast<double>(*after) - static_cast<double>(*before);
}

class Judge {
 public:
  Judge(const VerifyRun& run, const JudgeLimits& limits)
      : run_(run), limits_(limits), points_(points_of(run)) {}

  Judgement run() {
    if (points_.size() >= 3) measure();
    if (auto note = mappings_note(run_, points_)) result_.notes.push_back(std::move(*note));
    if (!other_process() && !interrupted() && !exercise_given_up() && !too_few_points() && !load_missing() &&
        !child_ended())
      weigh();
    return std::move(result_);
  }

 private:
  void conclude(VerdictClass kind, std::string text, std::string remedy = {}) {
    result_.verdict = {kind, std::move(text), std::move(remedy)};
  }

  [[nodiscard]] const Measurement& middle() const { return *points_[middle_of(points_.size())]; }
  [[nodiscard]] const Measurement& last() const { return *points_.back(); }
  [[nodiscard]] bool has_exercise() const { return !run_.exercise.command.empty(); }

  void measure() {
    if (!middle().memory.rss_anon)
      result_.notes.emplace_back("this kernel does not split the RSS: anonymous memory is judged by VmRSS");
    for (const MemoryKind kind : {MemoryKind::anonymous, MemoryKind::file, MemoryKind::shmem,
                                  MemoryKind::page_tables, MemoryKind::held})
      result_.trends.push_back({kind, trend_of(kind)});
    result_.swap_change = change_of(middle(), last(), &MemoryUse::swap);
    result_.lazy_free_change = change_of(middle(), last(), &MemoryUse::lazy_free);
    result_.cpu_seconds = cpu_between(middle(), last());
    if (has_exercise()) {
      result_.operations = (last().succeeded - middle().succeeded) * run_.exercise.operations_per_run;
      result_.all_operations = run_.exercise.succeeded * run_.exercise.operations_per_run;
    }
  }

  /// Anonymous memory is resident or swapped out; counted together, reclaim is neither growth nor a fix.
  [[nodiscard]] std::optional<double> value_of(const Measurement& at, MemoryKind kind) const {
    const MemoryUse& memory = at.memory;
    const auto number = [](const std::optional<std::uint64_t>& value) -> std::optional<double> {
      if (!value) return std::nullopt;
      return static_cast<double>(*value);
    };
    switch (kind) {
      case MemoryKind::file: return number(memory.rss_file);
      case MemoryKind::shmem: return number(memory.rss_shmem);
      case MemoryKind::page_tables: return number(memory.page_tables);
      case MemoryKind::held: return number(memory.held);
      case MemoryKind::anonymous: break;
    }
    const auto resident = number(middle().memory.rss_anon ? memory.rss_anon : memory.rss);
    if (!resident || (middle().memory.swap && !memory.swap)) return std::nullopt;
    return *resident + number(memory.swap).value_or(0);
  }

  [[nodiscard]] Trend trend_of(MemoryKind kind) const {
    std::vector<TrendSample> samples;
    for (const Measurement& at : run_.measurements) {
      if (const auto value = value_of(at, kind))
        samples.push_back({at.seconds, *value, at.point});
      else if (at.point)
        return {};  // a change between other points than said would be another answer
    }
    return find_trend(samples, limits_.growth,
                      kind == MemoryKind::file ? TrendRule::change_only : TrendRule::change_and_rate);
  }

  bool other_process() {
    const auto replaced = std::find_if(
        run_.measurements.begin(), run_.measurements.end(),
        [&](const Measurement& at) { return at.start_time != run_.measurements.front().start_time; });
    if (replaced != run_.measurements.end()) {
      conclude(
          VerdictClass::invalid,
          fmt::format("process {} was started anew between the points: its start time changed",
                      run_.target.pid),
          "memory before and after a restart says nothing about a leak; keep it running and measure again");
      return true;
    }
    if (run_.ending != RunEnding::target_ended && run_.ending != RunEnding::target_replaced &&
        run_.ending != RunEnding::unreadable)
      return false;
    conclude(VerdictClass::invalid, run_.ending_text,
             "the points are not of one running process; find out why it did not go on, and measure one that "
             "keeps "
             "running");
    return true;
  }

  bool interrupted() {
    if (run_.ending != RunEnding::interrupted) return false;
    std::string text =
        fmt::format("interrupted after {} of {}", points_.size(), count_text(run_.samples, "point"));
    if (points_.size() >= 2)
      if (const auto change = change_of(*points_.front(), last(), &MemoryUse::rss_anon))
        text += fmt::format("; until then RssAnon changed by {}", change_text(*change));
    conclude(VerdictClass::interrupted, std::move(text), "run it again to its end for a verdict");
    return true;
  }

  bool exercise_given_up() {
    if (run_.ending != RunEnding::exercise_failed) return false;
    conclude(VerdictClass::inconclusive, run_.ending_text,
             "make it succeed (its exit status 0) and run verify again");
    return true;
  }

  bool too_few_points() {
    if (points_.size() >= 3) return false;
    conclude(VerdictClass::inconclusive,
             fmt::format("{} measured, and three are needed", count_text(points_.size(), "point")),
             "run it with --samples 3 or more");
    return true;
  }

  bool load_missing() {
    auto verdict = judge_load(run_, middle(), last(), limits_, result_);
    if (!verdict) return false;
    result_.verdict = std::move(*verdict);
    return true;
  }

  /// A worker that was recycled took its growth with it.
  bool child_ended() {
    double gone = 0;
    std::size_t count = 0;
    for (const TreeMember& member : middle().members) {
      const bool remains =
          std::any_of(last().members.begin(), last().members.end(), [&](const TreeMember& later) {
            return later.pid == member.pid && later.start_time == member.start_time;
          });
      if (remains) continue;
      ++count;
      gone += static_cast<double>(member.rss_anon.value_or(0));
    }
    if (count == 0) return false;
    if (gone <= limits_.growth.max_delta / 2) {
      result_.notes.push_back(fmt::format(
          "{} of the tree with {} of anonymous memory ended between the middle and the last point",
          count_text(count, "process"), size_text(gone)));
      return false;
    }
    conclude(VerdictClass::inconclusive,
             fmt::format("{} of the tree with {} of anonymous memory ended between the middle and the last "
                         "point, which hides growth",
                         count == 1 ? "a process" : count_text(count) + " processes", size_text(gone)),
             "measure while no worker is recycled, or measure one worker with -p");
    return true;
  }

  /// Memory given back with MADV_FREE stays in RssAnon until the kernel needs it: not a leak.
  bool grew_by_lazily_freed(const Trend& anonymous) {
    const bool rose = anonymous.state == TrendState::grew || anonymous.doubt == Doubt::ended;
    if (!rose || !result_.lazy_free_change || *result_.lazy_free_change <= 0) return false;
    const double rest = anonymous.change - *result_.lazy_free_change;
    if (rest > limits_.growth.max_delta || rest > limits_.growth.max_rate * anonymous.window_seconds)
      return false;
    result_.notes.push_back(fmt::format(
        "{} of the change of RssAnon were given back with MADV_FREE (LazyFree) and are not growth",
        size_text(*result_.lazy_free_change)));
    return true;
  }

  void weigh() {
    const Trend& anonymous = *result_.trend(MemoryKind::anonymous);
    if (anonymous.state == TrendState::unknown)
      return conclude(VerdictClass::inconclusive,
                      "the anonymous memory of the process could not be read at every point",
                      "run as the user of the process or as root");
    const bool lazily_freed = grew_by_lazily_freed(anonymous);
    if (anonymous.state == TrendState::grew && !lazily_freed) return anonymous_grew(anonymous);
    // Page tables grow with whatever they map: where file pages grew too, those are the finding.
    const bool files_grew = result_.trend(MemoryKind::file)->state == TrendState::grew;
    for (const MemoryKind kind : {MemoryKind::shmem, MemoryKind::page_tables, MemoryKind::held})
      if (const Trend& trend = *result_.trend(kind);
          trend.state == TrendState::grew && !(kind == MemoryKind::page_tables && files_grew))
        return conclude(
            VerdictClass::moved,
            fmt::format("{} grew by {} between the middle and the last point ({}) while "
                        "anonymous memory changed by {}",
                        name_of(kind), size_text(trend.change), growth_rate_text(trend),
                        change_text(anonymous.change)),
            "if it was anonymous memory before the fix, it is only counted elsewhere now; if it always was "
            "this kind, the fix does not work; whomap trace -p PID of a running one shows what maps it");
    if (const Trend& file = *result_.trend(MemoryKind::file);
        file.state == TrendState::grew && !(anonymous.state == TrendState::unclear))
      return conclude(
          VerdictClass::not_same_leak,
          fmt::format("file pages grew by {} between the middle and the last point ({}), anonymous memory "
                      "changed by {}",
                      size_text(file.change), growth_rate_text(file), change_text(anonymous.change)),
          "file pages can be dropped by the kernel; see which files with whomap trace -p PID, or pmap -X");
    for (const auto& [kind, trend] : result_.trends)
      if (trend.state == TrendState::unclear && !(kind == MemoryKind::anonymous && lazily_freed)) {
        result_.verdict = doubt_verdict(kind, trend, limits_.growth, run_);
        return;
      }
    if (auto mappings = judge_mappings(run_, points_, anonymous.change)) {
      result_.verdict = std::move(*mappings);
      return;
    }
    is_fixed(anonymous, lazily_freed);
  }

  void anonymous_grew(const Trend& trend) {
    const bool swapped = result_.swap_change.value_or(0) > trend.change / 2;
    std::string text = fmt::format("anonymous memory grew by {} between the middle and the last point, {}",
                                   size_text(trend.change), growth_rate_text(trend));
    if (swapped) {
      return conclude(VerdictClass::moved,
                      text + fmt::format(", of it {} into swap, so that the RSS does not show it",
                                         size_text(*result_.swap_change)),
                      "judge RssAnon and VmSwap together; whomap trace -p PID shows what maps it");
    }
    if (result_.operations.value_or(0) > 0 && trend.change > 0)
      text += fmt::format(", {} per operation",
                          size_text(trend.change / static_cast<double>(*result_.operations)));
    constexpr double young_generation =
        32.0 * 1024 * 1024;  // V8's two semi-spaces of 16 MiB fill before it collects
    conclude(VerdictClass::not_fixed, std::move(text),
             trend.change < young_generation ? "whomap trace -p PID shows which code maps it; so little may "
                                               "also be garbage that was not collected "
                                               "yet: see with a longer --interval whether it goes on"
                                             : "whomap trace -p PID shows which code maps it");
  }

  void is_fixed(const Trend& anonymous, bool lazily_freed) {
    std::string text = fmt::format(
        "anonymous memory changed by {} between the middle and the last point{} (limit {})",
        change_text(anonymous.change),
        lazily_freed ? fmt::format(", {} of it given back with MADV_FREE",
                                   size_text(std::min(*result_.lazy_free_change, anonymous.change)))
                     : "",
        size_text(limits_.growth.max_delta));
    if (anonymous.slope && anonymous.state == TrendState::flat)
      text +=
          fmt::format(", growth above {} is excluded", per_minute_text(std::max(anonymous.slope->high, 0.0)));
    if (result_.all_operations)
      text += fmt::format(", {}", count_text(*result_.all_operations, "operation"));
    else
      result_.notes.emplace_back("the load came from elsewhere: how many operations it was is not known");
    for (const auto& [kind, trend] : result_.trends)
      if (trend.state == TrendState::unknown && kind != MemoryKind::held)  // the meter has said why
        result_.notes.push_back(
            fmt::format("{} could not be judged: not known at every point", name_of(kind)));
    conclude(VerdictClass::fixed, std::move(text));
  }

  const VerifyRun& run_;
  const JudgeLimits& limits_;
  std::vector<const Measurement*> points_;
  Judgement result_;
};

}  // namespace

std::vector<const Measurement*> points_of(const VerifyRun& run) {
  std::vector<const Measurement*> points;
  for (const Measurement& at : run.measurements)
    if (at.point) points.push_back(&at);
  return points;
}

Judgement judge(const VerifyRun& run, const JudgeLimits& limits) {
  return Judge(run, limits).run();
}

}  // namespace whomap
