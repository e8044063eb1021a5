// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_variant.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include <fmt/format.h>

#include "cli/verify_commands.h"
#include "cli/verify_trace.h"
#include "core/match/quantity.h"
#include "core/process/interrupted_calls.h"
#include "core/verify/early.h"
#include "core/verify/exercise.h"
#include "core/verify/text.h"

namespace whomap::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double patience_at_end_seconds = 5;

/// Marks what a variant starts, so that its orphans are known for its own.
constexpr const char* mark_name = "WHOMAP_TREE";

class Variant {
 public:
  Variant(const VerifyOptions& options, std::string name) : options_(options), name_(std::move(name)) {}

  Result<VariantResult> run() {
    const bool is_control = name_ == "control";
    std::vector<std::string> command =
        is_control ? std::vector<std::string>{"/bin/sh", "-c", replacing_the_shell(options_.control)}
                   : options_.command;
    if (!command.empty())
      if (auto started = start(command); !started) return tl::make_unexpected(started.error());
    SessionOptions session = options_.session;
    session.variant = name_;
    session.command = is_control ? options_.control : fmt::format("{}", fmt::join(options_.command, " "));
    auto run = measure(session);
    if (!run) return tl::make_unexpected(run.error());
    explain_ending(*run);
    read_trace(*run);
    result_.run = std::move(*run);
    if (group_) group_->end(patience_at_end_seconds);
    return std::move(result_);
  }

 private:
  void say(const std::string& text) const {
    if (!options_.common.quiet)
      std::fputs(
          fmt::format("whomap: {}{}\n", name_ == "control" ? "control: " : "", printable(text)).c_str(),
          stderr);
  }

  [[nodiscard]] std::string mark_value() const { return fmt::format("{}-{}", ::getpid(), name_); }
  [[nodiscard]] std::string mark() const { return fmt::format("{}={}", mark_name, mark_value()); }

  void say_once(const std::string& text) {
    if (said_.insert(text).second) say(text);
  }

  /// A started program may be a wrapper that becomes the real one: before the second point that is its start,
  /// and measured anew.
  Result<VerifyRun> measure(const SessionOptions& session) {
    constexpr int most_starts = 3;
    for (int starts = 1;; ++starts) {
      auto target = open(child_.pid > 0 ? child_.pid : *options_.pid);
      if (!target) return tl::make_unexpected(target.error());
      Meter meter(std::move(*target), {options_.tree, ::getpid(), group_ ? mark() : std::string{}});
      auto run = run_session(meter, session, events(session));
      const bool starting =
          run && run->ending == RunEnding::target_replaced && child_.pid > 0 && points_of(*run).size() < 2;
      if (!starting || starts == most_starts) return run;
      say("the program exec'd another one while it started: measuring anew");
    }
  }

  Result<void> start(const std::vector<std::string>& command) {
    auto group = ProcessGroup::create();
    if (!group) return tl::make_unexpected(group.error());
    group_.emplace(std::move(*group));
    // Its output beside our own messages: standard output is for the result.
    Launch launch;
    launch.arguments = command;
    launch.environment = {{"WHOMAP_VARIANT", name_}, {mark_name, mark_value()}};
    launch.output = STDERR_FILENO;
    auto child = group_->start(launch);
    if (!child) return tl::make_unexpected(child.error());
    child_ = std::move(*child);
    return options_.ready.empty() ? Result<void>{} : wait_until_ready();
  }

  Result<void> wait_until_ready() {
    ExerciseRecord record;
    record.command = options_.ready;
    auto ready =
        Exercise::create(record, {{"WHOMAP_PID", fmt::format("{}", child_.pid)}, {"WHOMAP_VARIANT", name_}},
                         options_.ready_timeout_seconds);
    if (!ready) return tl::make_unexpected(ready.error());
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(options_.ready_timeout_seconds));
    const std::vector<int> watched{options_.session.interrupt_fd, child_.pidfd.get()};
    for (;;) {
      const auto ended = ready->run(watched);
      if (!ended) return tl::make_unexpected(ended.error());
      if (*ended == Exercise::Ended::by_itself && record.succeeded > 0) return {};
      pollfd waiting[] = {{watched[0], POLLIN, 0}, {watched[1], POLLIN, 0}};
      constexpr int pause_ms = 100;
      ::poll(waiting, 2, pause_ms);
      if (waiting[0].revents != 0)
        return fail(ErrorCode::interrupted, "interrupted before the first point: nothing was measured");
      if (waiting[1].revents != 0)
        return fail(ErrorCode::process_ended,
                    fmt::format("the {} ended before it was ready{}", name_, how_it_ended()),
                    why_it_may_end());
      if (Clock::now() >= deadline)
        return fail(ErrorCode::process_ended,
                    fmt::format("the {} was not ready after {:g} s: {}", name_,
                                options_.ready_timeout_seconds, record.first_failure),
                    "check --ready, or give it more time with --ready-timeout" + beside_the_subject());
    }
  }

  Result<Target> open(pid_t pid) const {
    auto target = Target::open(pid);
    if (!target) {
      if (child_.pid > 0)
        return fail(ErrorCode::process_ended, fmt::format("the {} ended at once{}", name_, how_it_ended()),
                    why_it_may_end());
      return target;
    }
    const auto status = read_status(pid);
    if (status && (status->state == 'T' || status->state == 't'))
      return fail(ErrorCode::process_stopped, fmt::format("process {} ({}) is stopped", pid, status->name),
                  fmt::format("let it run: kill -CONT {}", pid));
    return target;
  }

  SessionEvents events(const SessionOptions& session) {
    SessionEvents events;
    events.point = [this, exercised = !session.exercise.empty()](const VerifyRun& so_far,
                                                                 std::uint64_t number) {
      say(fmt::format("point {} of {} after {}", number, so_far.samples,
                      point_text(so_far.measurements.back(), exercised)));
      for (const std::string& note : so_far.notes) say_once("note: " + note);
      if (const auto doubt = doubt_so_far(so_far)) say_once("so far: " + *doubt);
    };
    events.exercise_failed = [this](const ExerciseRecord& exercise) {
      say(fmt::format("an exercise failed: {}", exercise.first_failure));
    };
    if (options_.effects.empty()) return events;
    events.judged_part_begins = [this, &session](const Target& target) -> Result<void> {
      if (const AttachRisk risk = find_attach_risk(target); !risk.none()) say(risk_text(risk));
      // An exercise may take longer than planned; finish() ends the trace.
      const double planned = session.interval_seconds * static_cast<double>(session.samples);
      constexpr double a_week = 7 * 86400.0;
      auto trace =
          EffectTrace::start(target.pid(), std::min(10 * planned + 3600, a_week), session.interrupt_fd);
      if (!trace) {
        // The memory is measured all the same.
        if (trace.error().code != ErrorCode::interrupted) note_trace_problem(trace.error());
        return {};
      }
      trace_.emplace(std::move(*trace));
      say("tracing until the last point");
      return {};
    };
    return events;
  }

  /// A started program's own word on how it ended.
  void explain_ending(VerifyRun& run) const {
    if (run.ending == RunEnding::target_ended && child_.pid > 0)
      run.ending_text += how_it_ended() + beside_the_subject();
  }

  [[nodiscard]] std::string how_it_ended() const {
    int status = 0;
    if (child_.pid <= 0 || ::waitpid(child_.pid, &status, WNOHANG) != child_.pid) return {};
    return fmt::format(" ({})", ending_text(status));
  }

  /// What may be wrong with a control that does not come up beside a subject that goes on.
  [[nodiscard]] std::string beside_the_subject() const {
    if (name_ != "control" || !options_.pid) return {};
    return fmt::format(
        "; process {} goes on meanwhile: a control that needs the same port, file or lock must be given "
        "another, or let verify start both, with -- CMD",
        *options_.pid);
  }

  [[nodiscard]] std::string why_it_may_end() const { return "see what it printed" + beside_the_subject(); }

  void note_trace_problem(const Error& error) {
    result_.trace_problem = to_line(error);
    say(result_.trace_problem);
  }

  void read_trace(const VerifyRun& run) {
    if (!trace_) return;
    const auto report = trace_->finish();
    trace_.reset();
    if (run.ending != RunEnding::complete) return;  // the verdict needs no effects
    if (!report) return note_trace_problem(report.error());
    auto effects = find_effects(*report, options_.effects);
    if (!effects) return note_trace_problem(effects.error());
    result_.effects = std::move(*effects);
  }

  const VerifyOptions& options_;
  std::string name_;
  std::optional<ProcessGroup> group_;
  ChildProcess child_;
  std::optional<EffectTrace> trace_;  // after the group: it lets the target go before the group is ended
  VariantResult result_;
  std::set<std::string> said_;
};

}  // namespace

Result<VariantResult> measure_variant(const VerifyOptions& options, const std::string& name) {
  return Variant(options, name).run();
}

}  // namespace whomap::cli
