// SPDX-License-Identifier: Apache-2.0
#include "core/verify/session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/verify/exercise.h"
#include "core/verify/trend.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::optional<std::uint64_t> max_map_count() {
  const auto text = read_file("/proc/sys/vm/max_map_count");
  std::uint64_t count = 0;
  if (!text) return std::nullopt;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), count);
  return problem == std::errc{} ? std::optional(count) : std::nullopt;
}

class Session {
 public:
  Session(Meter& meter, const SessionOptions& options, const SessionEvents& events)
      : meter_(meter), options_(options), events_(events) {
    run_ = planned_run(options, meter.target().identity(), meter.tree());
    run_.max_map_count = max_map_count();
  }

  Result<VerifyRun> run() {
    if (auto prepared = prepare(); !prepared) return tl::make_unexpected(prepared.error());
    for (std::uint64_t number = 1; number <= options_.samples && going_on(); ++number) {
      if (number > 1)
        if (auto passed = pass_interval(number - 1); !passed) return tl::make_unexpected(passed.error());
      if (!going_on() || !measure(Detail::full)) break;
      run_.notes = meter_.notes();
      if (events_.point) events_.point(run_, number);
      if (auto told = tell_judged_part(number); !told) return tl::make_unexpected(told.error());
    }
    run_.notes = meter_.notes();
    return std::move(run_);
  }

 private:
  Result<void> prepare() {
    if (options_.exercise.empty()) return {};
    auto exercise = Exercise::create(
        run_.exercise,
        {{"WHOMAP_PID", fmt::format("{}", run_.target.pid)}, {"WHOMAP_VARIANT", options_.variant}},
        options_.exercise_timeout_seconds);
    if (!exercise) return tl::make_unexpected(exercise.error());
    exercise_.emplace(std::move(*exercise));
    return {};
  }

  [[nodiscard]] bool going_on() const { return run_.ending == RunEnding::complete; }

  Result<void> tell_judged_part(std::uint64_t number) {
    if (number == middle_of(options_.samples) + 1 && events_.judged_part_begins)
      return events_.judged_part_begins(meter_.target());
    if (number == options_.samples && events_.judged_part_ends) return events_.judged_part_ends();
    return {};
  }

  void end(RunEnding ending, std::string text) {
    run_.ending = ending;
    run_.ending_text = std::move(text);
  }

  /// False when the run is over.
  bool measure(Detail detail) {
    auto at = meter_.measure(detail);
    if (!at) {
      const ErrorCode code = at.error().code;
      const bool gone = code == ErrorCode::process_ended || code == ErrorCode::no_such_process;
      end(gone                                  ? RunEnding::target_ended
          : code == ErrorCode::process_replaced ? RunEnding::target_replaced
                                                : RunEnding::unreadable,
          to_line({code, at.error().happened, {}, at.error().os_error}));
      return false;
    }
    at->succeeded = run_.exercise.succeeded;
    at->failed = run_.exercise.failed;
    run_.measurements.push_back(std::move(*at));
    return true;
  }

  /// The runs of this interval's exercise, evenly spread over it so that growth by runs is growth by time,
  /// and the light measurements, which are only taken between runs: what a run needs meanwhile is not growth.
  Result<void> pass_interval(std::uint64_t interval) {
    const std::uint64_t intervals = options_.samples - 1;
    const std::uint64_t first = run_.exercise.count * (interval - 1) / intervals;
    const std::uint64_t runs = run_.exercise.count * interval / intervals - first;
    const Clock::time_point begin = Clock::now();
    const Clock::time_point end = begin + to_duration(options_.interval_seconds);
    Clock::time_point next_light = begin + light_spacing();
    std::uint64_t done = 0;
    while (going_on()) {
      const Clock::time_point now = Clock::now();
      if (done == runs && now >= end) return {};
      const Clock::time_point due =
          done < runs ? begin + to_duration(options_.interval_seconds * static_cast<double>(done) /
                                            static_cast<double>(runs))
                      : end;
      if (now >= next_light) {
        measure(Detail::light);
        next_light = Clock::now() + light_spacing();
      } else if (done < runs && now >= due) {
        const auto ended = exercise_->run({options_.interrupt_fd, meter_.target().pidfd()});
        if (!ended) return tl::make_unexpected(ended.error());
        if (*ended == Exercise::Ended::given_up)
          look(0);
        else
          ++done;
        weigh_failures();
      } else {
        look(static_cast<int>(
            std::chrono::ceil<std::chrono::milliseconds>(std::min(due, next_light) - now).count()));
      }
    }
    return {};
  }

  /// What has failed each time from the start on will do so to the end: no need to wait for it.
  void weigh_failures() {
    const ExerciseRecord& exercise = run_.exercise;
    if (exercise.failed == 1 && events_.exercise_failed && !failure_told_) {
      failure_told_ = true;
      events_.exercise_failed(exercise);
    }
    constexpr std::uint64_t most_failures = 10;
    constexpr std::uint64_t most_timeouts = 3;  // each takes its time
    if (exercise.succeeded > 0 || (exercise.failed < most_failures && exercise.timed_out < most_timeouts))
      return;
    end(RunEnding::exercise_failed,
        fmt::format("the exercise failed {0} of {0} times and was given up; the first time: {1}",
                    exercise.failed, exercise.first_failure));
  }

  /// Forty to an interval, and never more than a twentieth of the time for measuring.
  [[nodiscard]] Clock::duration light_spacing() const {
    constexpr double shortest = 0.01;
    constexpr int cost_share = 20;
    return std::max(to_duration(std::max(options_.interval_seconds / 40, shortest)),
                    meter_.last_cost() * cost_share);
  }

  /// Waits, and learns of an interrupt or the end of the target.
  void look(int milliseconds) {
    pollfd waiting[] = {{options_.interrupt_fd, POLLIN, 0}, {meter_.target().pidfd(), POLLIN, 0}};
    constexpr int longest = 60'000;
    if (::poll(waiting, 2, std::clamp(milliseconds, 0, longest)) <= 0) return;
    if (waiting[0].revents != 0) return end(RunEnding::interrupted, "interrupted");
    if (waiting[1].revents != 0)
      end(RunEnding::target_ended, fmt::format("process {} has ended", run_.target.pid));
  }

  Meter& meter_;
  const SessionOptions& options_;
  const SessionEvents& events_;
  VerifyRun run_;
  std::optional<Exercise> exercise_;
  bool failure_told_ = false;
};

}  // namespace

VerifyRun planned_run(const SessionOptions& options, const TargetIdentity& target, bool tree) {
  VerifyRun run;
  run.target = target;
  run.command = options.command;
  run.tree = tree;
  run.samples = options.samples;
  run.interval_seconds = options.interval_seconds;
  run.exercise.command = options.exercise;
  run.exercise.count = options.exercise.empty() ? 0 : options.count;
  run.exercise.operations_per_run = options.operations_per_run;
  return run;
}

Result<VerifyRun> run_session(Meter& meter, const SessionOptions& options, const SessionEvents& events) {
  return Session(meter, options, events).run();
}

}  // namespace whomap
