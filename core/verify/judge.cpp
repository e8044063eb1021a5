// SPDX-License-Identifier: Apache-2.0
#include "core/verify/judge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"

namespace whomap {
namespace {

using Field = std::optional<std::uint64_t> MemoryUse::*;

std::optional<double> change_of(const Measurement& from, const Measurement& to, Field field) {
  const auto& before = from.memory.*field;
  const auto& after = to.memory.*field;
  if (!before || !after) return std::nullopt;
  return static_cast<double>(*after) - static_cast<double>(*before);
}

std::string change_text(double bytes) {
  constexpr double most = 9.2e18;  // what fits int64_t
  return signed_bytes_text(static_cast<std::int64_t>(std::clamp(bytes, -most, most)));
}

std::string size_text(double bytes) {
  return change_text(std::abs(bytes)).substr(bytes == 0 ? 0 : 1);
}

std::string per_minute_text(double bytes_per_second) {
  return change_text(bytes_per_second * 60) + "/min";
}

class Judge {
 public:
  Judge(const VerifyRun& run, const JudgeLimits& limits)
      : run_(run), limits_(limits), points_(points_of(run)) {}

  Judgement run() {
    if (points_.size() >= 3) measure();
    if (!other_process() && !interrupted() && !too_few_points() && !load_missing() && !child_ended()) weigh();
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
    for (const MemoryKind kind :
         {MemoryKind::anonymous, MemoryKind::file, MemoryKind::shmem, MemoryKind::page_tables})
      result_.trends.push_back({kind, trend_of(kind)});
    result_.swap_change = change_of(middle(), last(), &MemoryUse::swap);
    result_.lazy_free_change = change_of(middle(), last(), &MemoryUse::lazy_free);
    // In a tree a child that ended takes its CPU time out of the sum.
    if (middle().cpu_seconds && last().cpu_seconds && *last().cpu_seconds >= *middle().cpu_seconds)
      result_.cpu_seconds = *last().cpu_seconds - *middle().cpu_seconds;
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
             "the points are not of one running process; find out why it ended, and measure one that keeps "
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

  bool too_few_points() {
    if (points_.size() >= 3) return false;
    conclude(VerdictClass::inconclusive,
             fmt::format("{} measured, and three are needed", count_text(points_.size(), "point")),
             "run it with --samples 3 or more");
    return true;
  }

  /// A process that does nothing grows by nothing.
  bool load_missing() {
    if (has_exercise()) return exercise_failed() || too_few_operations() || exercise_missed_the_process();
    constexpr double idle_share = 1e-4;  // of one CPU: a timer that fires once a second uses about as much
    const double seconds = last().seconds - middle().seconds;
    if (!result_.cpu_seconds || *result_.cpu_seconds > idle_share * seconds) return false;
    conclude(VerdictClass::inconclusive,
             fmt::format(
                 "the process was idle: it used {:.1f} ms of CPU in {} between the middle and the last point",
                 *result_.cpu_seconds * 1000, seconds_text(seconds)),
             "put load on it, or let whomap do so with --exercise");
    return true;
  }

  bool exercise_failed() {
    const ExerciseRecord& exercise = run_.exercise;
    const std::uint64_t failed_late = last().failed - middle().failed;
    const std::uint64_t runs_late = failed_late + last().succeeded - middle().succeeded;
    const bool too_many_late =
        runs_late == 0 ||
        static_cast<double>(failed_late) > limits_.most_failed_share * static_cast<double>(runs_late);
    const bool too_few_left = exercise.failed > 0 && *result_.all_operations < limits_.least_operations;
    if (exercise.failed == 0 || !(too_many_late || too_few_left)) {
      if (exercise.failed > 0)
        result_.notes.push_back(fmt::format("{} of {} failed; the first: {}", count_text(exercise.failed),
                                            count_text(exercise.failed + exercise.succeeded, "exercise"),
                                            exercise.first_failure));
      return false;
    }
    conclude(VerdictClass::inconclusive,
             fmt::format("the exercise failed {} of {}; the first time: {}", count_text(exercise.failed),
                         count_text(exercise.failed + exercise.succeeded, "time"), exercise.first_failure),
             "make it succeed (its exit status 0) and run verify again");
    return true;
  }

  bool too_few_operations() {
    if (*result_.all_operations >= limits_.least_operations) return false;
    conclude(
        VerdictClass::inconclusive,
        fmt::format("{} ran, and fewer than {} are no evidence",
                    count_text(*result_.all_operations, "operation"), count_text(limits_.least_operations)) +
            grown_nevertheless(),
        "give --count 200 or more, or --operations-per-run where one exercise performs many");
    return true;
  }

  bool exercise_missed_the_process() {
    // A process that answers wakes up and makes a system call at least: about 2 us on current machines.
    constexpr double least_cpu_per_run = 2e-6;
    const auto runs = static_cast<double>(last().succeeded - middle().succeeded);
    if (!result_.cpu_seconds || *result_.cpu_seconds >= least_cpu_per_run * runs) return false;
    conclude(VerdictClass::inconclusive,
             fmt::format(
                 "the exercise does not reach this process: it used {:.3f} ms of CPU during {:.0f} exercises",
                 *result_.cpu_seconds * 1000, runs),
             run_.tree ? "check what the exercise talks to"
                       : "check what the exercise talks to; where children do the work, add --tree");
    return true;
  }

  [[nodiscard]] std::string grown_nevertheless() const {
    const Trend* anonymous = result_.trend(MemoryKind::anonymous);
    if (anonymous == nullptr || anonymous->state != TrendState::grew) return {};
    return fmt::format("; anonymous memory grew meanwhile, {}", rate_text(*anonymous));
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
    if (anonymous.state != TrendState::grew || !result_.lazy_free_change || *result_.lazy_free_change <= 0)
      return false;
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
    for (const MemoryKind kind : {MemoryKind::shmem, MemoryKind::page_tables})
      if (const Trend& trend = *result_.trend(kind); trend.state == TrendState::grew)
        return conclude(VerdictClass::moved,
                        fmt::format("{} grew by {} between the middle and the last point ({}) while "
                                    "anonymous memory changed by {}",
                                    name_of(kind), size_text(trend.change), rate_text(trend),
                                    change_text(anonymous.change)),
                        "the growth is only counted elsewhere; whomap trace -p PID shows what maps it");
    if (const Trend& file = *result_.trend(MemoryKind::file);
        file.state == TrendState::grew && !(anonymous.state == TrendState::unclear))
      return conclude(
          VerdictClass::not_same_leak,
          fmt::format("file pages grew by {} between the middle and the last point ({}), anonymous memory "
                      "changed by {}",
                      size_text(file.change), rate_text(file), change_text(anonymous.change)),
          "file pages can be dropped by the kernel; see which files with whomap trace -p PID, or pmap -X");
    for (const auto& [kind, trend] : result_.trends)
      if (trend.state == TrendState::unclear && !(kind == MemoryKind::anonymous && lazily_freed))
        return doubt(kind, trend);
    is_fixed(anonymous);
  }

  void anonymous_grew(const Trend& trend) {
    const bool swapped = result_.swap_change.value_or(0) > trend.change / 2;
    std::string text = fmt::format("anonymous memory grew by {} between the middle and the last point, {}",
                                   size_text(trend.change), rate_text(trend));
    if (swapped) {
      return conclude(VerdictClass::moved,
                      text + fmt::format(", of it {} into swap, so that the RSS does not show it",
                                         size_text(*result_.swap_change)),
                      "judge RssAnon and VmSwap together; whomap trace -p PID shows what maps it");
    }
    if (result_.operations.value_or(0) > 0 && trend.change > 0)
      text += fmt::format(", {} per operation",
                          size_text(trend.change / static_cast<double>(*result_.operations)));
    conclude(VerdictClass::not_fixed, std::move(text), "whomap trace -p PID shows which code maps it");
  }

  void doubt(MemoryKind kind, const Trend& trend) {
    const auto say = [&](std::string text, std::string remedy) {
      conclude(VerdictClass::inconclusive, std::move(text), std::move(remedy));
    };
    const std::string_view name = name_of(kind);
    const std::string limit = size_text(limits_.growth.max_delta);
    const std::string rate_limit = per_minute_text(limits_.growth.max_rate);
    switch (trend.doubt) {
      case Doubt::noise:
        if (trend.fall > limits_.growth.max_delta || !trend.slope)
          return say(
              fmt::format("{} rises and falls by {}, more than the limit of {}", name,
                          size_text(std::max(trend.fall, std::abs(trend.change))), limit),
              "take more points (--samples 10), over a longer time, or raise --max-delta above the noise");
        return say(
            fmt::format("{} changed by {} at {}: growth of {} cannot be excluded", name,
                        change_text(trend.change), rate_text(trend), rate_limit),
            fmt::format("measure longer: --interval {:.0f}, or more --samples", longer_interval(trend)));
      case Doubt::spike:
        return say(fmt::format(
                       "{} is {} higher at the last point than at the middle one, but was not shortly before",
                       name, size_text(trend.change)),
                   "see with more --samples whether it stays there");
      case Doubt::warming_up:
        return say(
            fmt::format("{} grew by {} up to the middle point and by {} after it: it may still be warming up",
                        name, size_text(trend.warm_up), change_text(trend.change)),
            "let it warm up first, then measure with more --samples or a longer --interval");
      case Doubt::slowing:
        return say(fmt::format("{} still grows, {}, though ever slower", name, rate_text(trend)),
                   "measure longer, with more --samples, until it stands still or does not");
      case Doubt::going_on:
        return say(fmt::format("{} grew by {}, less than {}, but at {}, above {}", name,
                               size_text(trend.change), limit, rate_text(trend), rate_limit),
                   "take 6 points or more (--samples), over a longer time");
      case Doubt::too_short:
        return say(fmt::format("{} between the middle and the last point are too short to see growth of {}",
                               seconds_text(trend.window_seconds), rate_limit),
                   fmt::format("measure longer (--interval {:.0f}), or allow a faster growth with --max-rate",
                               std::ceil(2 * counter_resolution / limits_.growth.max_rate *
                                         run_.interval_seconds / std::max(trend.window_seconds, 1e-3))));
      case Doubt::none: break;
    }
    say(fmt::format("{} cannot be judged", name), "");
  }

  /// With the same noise and as many readings, the interval narrows as the time grows.
  [[nodiscard]] double longer_interval(const Trend& trend) const {
    const double needed =
        std::max((trend.slope->high - trend.slope->low) / 2, trend.slope->high) / limits_.growth.max_rate;
    constexpr double a_day = 86400;
    return std::min(std::ceil(run_.interval_seconds * std::max(needed, 1.5)), a_day);
  }

  void is_fixed(const Trend& anonymous) {
    std::string text =
        fmt::format("anonymous memory changed by {} between the middle and the last point (limit {})",
                    change_text(anonymous.change), size_text(limits_.growth.max_delta));
    if (anonymous.slope)
      text +=
          fmt::format(", growth above {} is excluded", per_minute_text(std::max(anonymous.slope->high, 0.0)));
    if (result_.all_operations)
      text += fmt::format(", {}", count_text(*result_.all_operations, "operation"));
    else
      result_.notes.emplace_back("the load came from elsewhere: how many operations it was is not known");
    for (const auto& [kind, trend] : result_.trends)
      if (trend.state == TrendState::unknown)
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

std::string_view name_of(VerdictClass verdict) {
  switch (verdict) {
    case VerdictClass::fixed: return "fixed";
    case VerdictClass::not_fixed: return "not-fixed";
    case VerdictClass::not_same_leak: return "not-same-leak";
    case VerdictClass::moved: return "moved";
    case VerdictClass::proves_nothing: return "proves-nothing";
    case VerdictClass::invalid: return "invalid";
    case VerdictClass::inconclusive: return "inconclusive";
    case VerdictClass::interrupted: return "interrupted";
  }
  return "inconclusive";
}

ExitStatus exit_status(VerdictClass verdict) {
  switch (verdict) {
    case VerdictClass::fixed: return ExitStatus::done;
    case VerdictClass::not_fixed:
    case VerdictClass::not_same_leak:
    case VerdictClass::moved:
    case VerdictClass::proves_nothing: return ExitStatus::negative;
    case VerdictClass::invalid: return ExitStatus::no_process;
    case VerdictClass::inconclusive: return ExitStatus::inconclusive;
    case VerdictClass::interrupted: return ExitStatus::interrupted;
  }
  return ExitStatus::inconclusive;
}

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::anonymous: return "anonymous memory";
    case MemoryKind::file: return "file pages";
    case MemoryKind::shmem: return "shared memory";
    case MemoryKind::page_tables: return "page tables";
  }
  return "memory";
}

const Trend* Judgement::trend(MemoryKind kind) const {
  const auto found =
      std::find_if(trends.begin(), trends.end(), [&](const KindTrend& each) { return each.kind == kind; });
  return found == trends.end() ? nullptr : &found->trend;
}

std::vector<const Measurement*> points_of(const VerifyRun& run) {
  std::vector<const Measurement*> points;
  for (const Measurement& at : run.measurements)
    if (at.point) points.push_back(&at);
  return points;
}

std::string rate_text(const Trend& trend) {
  std::string text = per_minute_text(trend.rate());
  if (trend.slope)
    text +=
        fmt::format(" [{} .. {}]", change_text(trend.slope->low * 60), change_text(trend.slope->high * 60));
  return text;
}

Judgement judge(const VerifyRun& run, const JudgeLimits& limits) {
  return Judge(run, limits).run();
}

}  // namespace whomap
