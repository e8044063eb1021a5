// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_variant.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "cli/verify_trace.h"
#include "core/match/quantity.h"
#include "core/verify/exercise.h"
#include "core/verify/text.h"

namespace whomap::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double patience_at_end_seconds = 5;

/// A simple command as one that takes the shell's place: dash, unlike bash, stays in between and would be the
/// process that is measured. A command line with more to it than words is left as it is.
std::string replacing_the_shell(const std::string& command) {
  const bool only_words = command.find_first_of(";&|<>()`$\n#") == std::string::npos;
  const std::string first = command.substr(0, command.find_first_of(" \t"));
  const bool plain =
      first.find('=') == std::string::npos && first != "exec" && first != "cd" && !first.empty();
  return only_words && plain ? "exec " + command : command;
}

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
    if (auto traced = trace_result(*run); !traced) return tl::make_unexpected(traced.error());
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

  /// A started program may be a wrapper that becomes the real one: before the second point that is its start,
  /// and measured anew.
  Result<VerifyRun> measure(const SessionOptions& session) {
    constexpr int most_starts = 3;
    for (int starts = 1;; ++starts) {
      auto target = open(child_.pid > 0 ? child_.pid : *options_.pid);
      if (!target) return tl::make_unexpected(target.error());
      Meter meter(std::move(*target), options_.tree, ::getpid());
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
    launch.environment = {{"WHOMAP_VARIANT", name_}};
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
                    fmt::format("the {} ended before it was ready{}", name_, how_it_ended()));
      if (Clock::now() >= deadline)
        return fail(ErrorCode::process_ended,
                    fmt::format("the {} was not ready after {:g} s: {}", name_,
                                options_.ready_timeout_seconds, record.first_failure),
                    "check --ready, or give it more time with --ready-timeout");
    }
  }

  Result<Target> open(pid_t pid) const {
    auto target = Target::open(pid);
    if (!target) {
      if (child_.pid > 0)
        return fail(ErrorCode::process_ended, fmt::format("the {} ended at once{}", name_, how_it_ended()),
                    "see what it printed");
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
    events.point = [this, samples = session.samples, exercised = !session.exercise.empty()](
                       const Measurement& at, std::uint64_t number) {
      say(fmt::format("point {} of {} after {}", number, samples, point_text(at, exercised)));
    };
    if (options_.effects.empty()) return events;
    events.judged_part_begins = [this, &session](const Target& target) -> Result<void> {
      // An exercise may take longer than planned; finish() ends the trace.
      const double planned = session.interval_seconds * static_cast<double>(session.samples);
      constexpr double a_week = 7 * 86400.0;
      auto trace =
          EffectTrace::start(target.pid(), std::min(10 * planned + 3600, a_week), session.interrupt_fd);
      if (!trace) return tl::make_unexpected(trace.error());
      trace_.emplace(std::move(*trace));
      say("tracing until the last point");
      return {};
    };
    return events;
  }

  /// A started program's own word on how it ended.
  void explain_ending(VerifyRun& run) const {
    if (run.ending == RunEnding::target_ended && child_.pid > 0) run.ending_text += how_it_ended();
  }

  [[nodiscard]] std::string how_it_ended() const {
    int status = 0;
    if (child_.pid <= 0 || ::waitpid(child_.pid, &status, WNOHANG) != child_.pid) return {};
    return fmt::format(" ({})", ending_text(status));
  }

  Result<void> trace_result(const VerifyRun& run) {
    if (!trace_) return {};
    const auto report = trace_->finish();
    trace_.reset();
    if (run.ending != RunEnding::complete) return {};  // the verdict needs no effects
    if (!report) return tl::make_unexpected(report.error());
    auto effects = find_effects(*report, options_.effects);
    if (!effects) return tl::make_unexpected(effects.error());
    result_.effects = std::move(*effects);
    return {};
  }

  const VerifyOptions& options_;
  std::string name_;
  std::optional<ProcessGroup> group_;
  ChildProcess child_;
  std::optional<EffectTrace> trace_;  // after the group: it lets the target go before the group is ended
  VariantResult result_;
};

}  // namespace

Result<VariantResult> measure_variant(const VerifyOptions& options, const std::string& name) {
  return Variant(options, name).run();
}

}  // namespace whomap::cli
