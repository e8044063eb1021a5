// SPDX-License-Identifier: Apache-2.0
#include "core/verify/load.h"

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/amount.h"

namespace whomap {
namespace {

class LoadJudge {
 public:
  LoadJudge(const VerifyRun& run, const Measurement& middle, const Measurement& last,
            const JudgeLimits& limits, Judgement& judgement)
      : run_(run), middle_(middle), last_(last), limits_(limits), result_(judgement) {}

  /// A process that does nothing grows by nothing.
  std::optional<Verdict> run() {
    if (!run_.exercise.command.empty()) {
      if (auto verdict = exercise_failed()) return verdict;
      if (auto verdict = too_few_operations()) return verdict;
    }
    return load_missed(run_, middle_, last_);
  }

 private:
  std::optional<Verdict> exercise_failed() {
    const ExerciseRecord& exercise = run_.exercise;
    const std::uint64_t failed_late = last_.failed - middle_.failed;
    const std::uint64_t runs_late = failed_late + last_.succeeded - middle_.succeeded;
    const bool too_many_late =
        runs_late == 0 ||
        static_cast<double>(failed_late) > limits_.most_failed_share * static_cast<double>(runs_late);
    const bool too_few_left = exercise.failed > 0 && *result_.all_operations < limits_.least_operations;
    if (exercise.failed == 0 || !(too_many_late || too_few_left)) {
      if (exercise.failed > 0)
        result_.notes.push_back(fmt::format("{} of {} failed; the first: {}", count_text(exercise.failed),
                                            count_text(exercise.failed + exercise.succeeded, "exercise"),
                                            exercise.first_failure));
      return std::nullopt;
    }
    return Verdict{
        VerdictClass::inconclusive,
        fmt::format("the exercise failed {} of {}; the first time: {}", count_text(exercise.failed),
                    count_text(exercise.failed + exercise.succeeded, "time"), exercise.first_failure),
        "make it succeed (its exit status 0) and run verify again"};
  }

  std::optional<Verdict> too_few_operations() {
    if (*result_.all_operations >= limits_.least_operations) return std::nullopt;
    return Verdict{
        VerdictClass::inconclusive,
        fmt::format("{} ran, and fewer than {} are no evidence",
                    count_text(*result_.all_operations, "operation"), count_text(limits_.least_operations)) +
            grown_nevertheless(),
        "give --count 200 or more, or --operations-per-run where one exercise performs many"};
  }

  [[nodiscard]] std::string grown_nevertheless() const {
    const Trend* anonymous = result_.trend(MemoryKind::anonymous);
    if (anonymous == nullptr || anonymous->state != TrendState::grew) return {};
    return fmt::format("; anonymous memory grew meanwhile, {}", growth_rate_text(*anonymous));
  }

  const VerifyRun& run_;
  const Measurement& middle_;
  const Measurement& last_;
  const JudgeLimits& limits_;
  Judgement& result_;
};

}  // namespace

std::optional<Verdict> judge_load(const VerifyRun& run, const Measurement& middle, const Measurement& last,
                                  const JudgeLimits& limits, Judgement& judgement) {
  return LoadJudge(run, middle, last, limits, judgement).run();
}

std::optional<double> cpu_between(const Measurement& from, const Measurement& to) {
  // In a tree a child that ended takes its CPU time out of the sum.
  if (!from.cpu_seconds || !to.cpu_seconds || *to.cpu_seconds < *from.cpu_seconds) return std::nullopt;
  return *to.cpu_seconds - *from.cpu_seconds;
}

std::optional<Verdict> load_missed(const VerifyRun& run, const Measurement& from, const Measurement& to) {
  const auto cpu = cpu_between(from, to);
  const double seconds = to.seconds - from.seconds;
  if (run.exercise.command.empty()) {
    constexpr double idle_share = 1e-4;  // of one CPU: a timer that fires once a second uses about as much
    if (!cpu || *cpu > idle_share * seconds) return std::nullopt;
    return Verdict{VerdictClass::inconclusive,
                   fmt::format("the process was idle: it used {:.1f} ms of CPU in {}", *cpu * 1000,
                               seconds_text(seconds)),
                   "put load on it, or let whomap do so with --exercise"};
  }
  // A process that answers wakes up and makes a system call at least: about 2 us on current machines.
  constexpr double least_cpu_per_run = 2e-6;
  const auto runs = static_cast<double>(to.succeeded - from.succeeded);
  if (!cpu || *cpu >= least_cpu_per_run * runs) return std::nullopt;
  return Verdict{
      VerdictClass::inconclusive,
      fmt::format(
          "the exercise does not reach this process: it used {:.3f} ms of CPU during {:.0f} exercises",
          *cpu * 1000, runs),
      run.tree ? "check what the exercise talks to"
               : "check what the exercise talks to; where children do the work, add --tree"};
}

}  // namespace whomap
