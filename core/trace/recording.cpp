// SPDX-License-Identifier: Apache-2.0
#include "core/trace/recording.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/version.h"
#include "core/capture/copy_size.h"
#include "core/process/syscalls.h"
#include "core/trace/slowdown_budget.h"
#include "core/trace/stack_table.h"
#include "core/trace/writer.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC on Linux, as the events' times

constexpr double ns_per_ms = 1e6;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// The phases of a trace, in their order.
enum class Phase { arming, watching, letting_go, over };

class Recorder {
 public:
  Recorder(const Target& target, CaptureSource& source, const RecordingOptions& options, TraceWriter writer)
      : target_(target),
        source_(source),
        options_(options),
        writer_(std::move(writer)),
        stacks_(target),
        budget_(options.max_slowdown) {}

  RecordingResult run(const std::function<void(const RecordingProgress&)>& progress,
                      std::function<StopTimes(bool engine_finished)> let_go) {
    let_go_ = std::move(let_go);
    for (const std::string& text : options_.notes) note(text);
    source_.say_ready();
    enter(Phase::arming, options_.patience_seconds);
    while (phase_ != Phase::over) {
      wait();
      progress_if_due(progress);
    }
    release_target();
    write_names();
    finish();
    return std::move(result_);
  }

 private:
  void enter(Phase phase, double seconds) {
    phase_ = phase;
    deadline_ = Clock::now() + to_duration(seconds);
  }

  void end(std::string reason) {
    if (result_.end.reason.empty()) result_.end.reason = std::move(reason);
  }

  /// Asks the engine to stop; until it has let go, captures still come in and are kept.
  void begin_letting_go(std::string reason) {
    if (phase_ == Phase::watching) take_last_snapshot();
    end(std::move(reason));
    if (phase_ == Phase::letting_go || phase_ == Phase::over) return;
    source_.ask_for_end();
    enter(Phase::letting_go, options_.patience_seconds);
  }

  /// The engine's clean-up, once.
  void release_target() {
    const auto let_go = std::exchange(let_go_, nullptr);
    if (!let_go) return;
    const StopTimes stops = let_go(result_.engine_finished);
    for (const std::string& text : stops.notes) note(text);
    if (stops.total_ns == 0) return;
    TraceEnd& totals = result_.end;
    totals.stopped_ms = totals.stopped_ms.value_or(0) + static_cast<double>(stops.total_ns) / ns_per_ms;
    totals.longest_stop_ms =
        std::max(totals.longest_stop_ms.value_or(0), static_cast<double>(stops.longest_ns) / ns_per_ms);
  }

  void wait() {
    const int pidfd = target_gone_ ? -1 : target_.pidfd();
    const int interrupt = interrupted_ ? -1 : options_.interrupt_fd;
    pollfd waiting[] = {{source_.fd(), POLLIN, 0}, {pidfd, POLLIN, 0}, {interrupt, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_wake() - Clock::now()).count();
    if (::poll(waiting, 3, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000))) < 0) return;
    if (waiting[0].revents != 0) receive();
    if (waiting[1].revents != 0) {
      target_gone_ = true;
      begin_letting_go("target-exited");
    }
    if (waiting[2].revents != 0) {
      interrupted_ = true;
      begin_letting_go("interrupted");
    }
    if (phase_ == Phase::watching && Clock::now() >= next_rolling_) take_rolling_snapshot();
    if (Clock::now() >= deadline_) time_is_up();
  }

  [[nodiscard]] Clock::time_point next_wake() const {
    Clock::time_point wake = deadline_;
    if (phase_ == Phase::watching) wake = std::min(wake, next_rolling_);
    return std::min(wake, Clock::now() + std::chrono::milliseconds(250));
  }

  void time_is_up() {
    switch (phase_) {
      case Phase::arming: begin_letting_go("engine-did-not-start"); break;
      case Phase::watching: begin_letting_go("time"); break;
      case Phase::letting_go:
      case Phase::over: phase_ = Phase::over; break;
    }
  }

  void receive() {
    const auto alive = source_.deliver([this](TracerMessage& message) {
      if (auto* capture = std::get_if<Capture>(&message)) return take(*capture);
      if (std::holds_alternative<Armed>(message)) return armed();
      finished(std::get<Finished>(message));
    });
    if (!alive) {
      note(to_line(alive.error()));
      return;
    }
    if (!*alive) {
      // The engine is gone without a word: its breakpoints may be in the code, so that comes first.
      release_target();
      if (phase_ == Phase::watching) take_last_snapshot();
      end("engine-died");
      phase_ = Phase::over;
    }
  }

  void armed() {
    result_.armed = true;
    own_memory_ = options_.own_memory();
    begin_ = Clock::now();
    // Read when the sites are watched already: whatever is newer than this snapshot was captured.
    if (auto snapshot = without_own(take_snapshot(target_))) {
      keep(writer_.snapshot(*snapshot));
      first_ = std::move(*snapshot);
    } else {
      note("no first snapshot: " + to_line(snapshot.error()));
    }
    if (phase_ == Phase::arming) enter(Phase::watching, options_.seconds);
    take_rolling_snapshot();
  }

  void finished(const Finished& engine) {
    const TracerCounts& counts = engine.counts;
    for (const std::string& text : engine.notes) note(text);
    left_out(engine.left_out);
    result_.engine_finished = true;
    TraceEnd& totals = result_.end;
    totals.hits = counts.hits;
    totals.lost += counts.lost + counts.unreadable;
    if (counts.lost > 0)
      keep(writer_.lost({counts.lost, "whomap could not take captures as fast as they came"}));
    if (counts.unreadable > 0)
      keep(writer_.lost({counts.unreadable, "registers of a stopped thread could not be read"}));
    if (counts.unpaired > 0)
      note(fmt::format(
          "{} calls were seen to start and not to return: a signal handler jumped away, the thread ended, or "
          "the trace did",
          counts.unpaired));
    if (counts.stopped_ns > 0) {
      totals.stopped_ms = static_cast<double>(counts.stopped_ns) / ns_per_ms;
      totals.longest_stop_ms = static_cast<double>(counts.longest_stop_ns) / ns_per_ms;
    }
    // At each hit one thread waits while the tracer works: its processor time is time of the target.
    if (const double seconds = seconds_since(begin_);
        result_.armed && counts.hits > 0 && counts.busy_ns > 0 && seconds > 0)
      totals.predicted_slowdown = std::min(1.0, static_cast<double>(counts.busy_ns) / 1e9 / seconds);
    // Without a descriptor to look with (kernel_feature) nothing is known of the target; finish() says so.
    if (auto changed = target_.check(); !changed && changed.error().code != ErrorCode::kernel_feature) {
      target_gone_ = true;
      end(changed.error().code == ErrorCode::process_replaced ? "target-exec" : "target-exited");
    }
    if (phase_ == Phase::watching) take_last_snapshot();
    end(options_.engine_ended);
    phase_ = Phase::over;
  }

  /// What the stubs have left out, and what they could not.
  void left_out(LeftOut counts) {
    counts.too_short += too_short_.too_short;
    counts.too_short_bytes += too_short_.too_short_bytes;
    result_.end.left_out = counts.calls();
    if (counts.too_short != 0)
      note(
          fmt::format("left out by --min-length {}: {} mmap calls of {} bytes in all, whose memory no stack "
                      "explains",
                      options_.minimum_length, counts.too_short, counts.too_short_bytes));
    if (counts.not_sampled != 0)
      note(
          fmt::format("left out by --sample-bytes: {} mmap calls of {} bytes in all, whose memory no stack "
                      "explains: sizes and counts are those of the sample",
                      counts.not_sampled, counts.not_sampled_bytes));
    if (counts.over_rate != 0)
      note(fmt::format("left out by --max-rate: {} calls, whose memory no stack explains", counts.over_rate));
  }

  /// An mmap that came through a breakpoint, without a stub that would have left it out.
  bool is_too_short(const CallEvent& call) {
    constexpr std::size_t length = 1, flags = 3;
    if (call.number != SYS_mmap || (call.arguments[flags] & MAP_FIXED) != 0 ||
        call.arguments[length] >= options_.minimum_length)
      return false;
    ++too_short_.too_short;
    too_short_.too_short_bytes += call.arguments[length];
    return true;
  }

  void take(const Capture& capture) {
    if (is_too_short(capture.event)) return;
    TraceEnd& totals = result_.end;
    ++totals.events;
    if (is_syscall_error(capture.event.result)) ++totals.failed_calls;
    threads_.insert(capture.event.tid);
    const StackTable::Found found = stacks_.find(capture.registers, capture.stack);
    if (const auto size = copy_size_.seen(found.stack_bytes, found.copy_ended))
      source_.ask_for_stack_bytes(*size);
    if (found.is_new) keep(writer_.stack(stacks_.stack(found.id)));
    keep(writer_.event({capture.event, found.id}));
    if (phase_ == Phase::watching && options_.max_hits && totals.events >= *options_.max_hits)
      begin_letting_go("hits");
  }

  Result<Snapshot> without_own(Result<Snapshot> snapshot) const {
    if (snapshot) leave_out(target_, *snapshot, own_memory_);
    return snapshot;
  }

  /// Kept in case the target ends: then there is nothing left to read.
  void take_rolling_snapshot() {
    const auto begin = Clock::now();
    if (auto snapshot = without_own(take_mapping_snapshot(target_))) rolling_ = std::move(*snapshot);
    const auto cost = Clock::now() - begin;
    constexpr int cost_share = 100;  // of the time goes into this at most
    next_rolling_ = Clock::now() + std::max<Clock::duration>(std::chrono::seconds(1), cost * cost_share);
  }

  void take_last_snapshot() {
    result_.end.end_ns = monotonic_ns();
    if (auto snapshot = target_gone_ ? fail(ErrorCode::process_ended, "the target has ended")
                                     : without_own(take_snapshot(target_))) {
      if (first_)
        if (const auto added = add_resident_pages(target_, *first_, *snapshot); !added)
          note("which pages are in memory is not known: " + to_line(added.error()));
      keep(writer_.snapshot(*snapshot));
      return;
    }
    const std::string why = target_gone_ ? "the target had ended" : "the target could not be read";
    if (!rolling_) return note("no snapshot after the trace: " + why);
    keep(writer_.snapshot(*rolling_));
    note(fmt::format("the last snapshot is from {:.1f} s before the end: {}",
                     static_cast<double>(result_.end.end_ns - rolling_->time_ns) / 1e9, why));
  }

  void write_names() {
    if (!target_gone_) stacks_.read_modules();
    for (std::uint32_t id = 0; id < stacks_.size(); ++id) keep(writer_.symbols(stacks_.named(id)));
  }

  void finish() {
    for (const std::string& text : stacks_.notes()) note(text);
    TraceEnd& totals = result_.end;
    if (totals.end_ns == 0) totals.end_ns = monotonic_ns();
    totals.threads = threads_.size();
    keep(writer_.end(totals));
    if (auto changed = target_.check(); !changed) result_.target = changed.error();
  }

  void note(const std::string& text) { keep(writer_.note(text)); }

  void keep(const Result<void>& written) {
    if (!written && !result_.output) {
      result_.output = written.error();
      begin_letting_go("output-failed");
    }
  }

  void look_at_budget() {
    const auto waited = source_.target_waited_ns();
    if (!waited) return;
    budget_.look(seconds_since(begin_), *waited);
    if (!budget_.exceeded()) return;
    note(
        fmt::format("calls came so fast that for {:.0f} % of a second a thread of the process waited for "
                    "whomap, and {:.0f} % "
                    "were allowed (--max-slowdown): ended early, the answer is from {:.1f} s",
                    budget_.spent() * 100, options_.max_slowdown * 100, seconds_since(begin_)));
    begin_letting_go("slowdown");
  }

  void progress_if_due(const std::function<void(const RecordingProgress&)>& progress) {
    if (phase_ != Phase::watching || Clock::now() < next_progress_) return;
    next_progress_ = Clock::now() + std::chrono::milliseconds(250);
    look_at_budget();
    progress({seconds_since(begin_), result_.end.events});
    keep(writer_.flush());
  }

  std::function<StopTimes(bool)> let_go_;
  const Target& target_;
  CaptureSource& source_;
  const RecordingOptions& options_;
  TraceWriter writer_;
  StackTable stacks_;
  CopySize copy_size_;
  SlowdownBudget budget_;
  RecordingResult result_;
  Phase phase_ = Phase::arming;
  Clock::time_point deadline_, begin_, next_rolling_, next_progress_;
  std::optional<Snapshot> first_, rolling_;
  std::vector<AddressRange> own_memory_;
  std::set<pid_t> threads_;
  LeftOut too_short_;
  bool target_gone_ = false;
  bool interrupted_ = false;
};

}  // namespace

Result<RecordingResult> record(const Target& target, const Plan& plan, CaptureSource& source,
                               const RecordingOptions& options,
                               const std::function<void(const RecordingProgress&)>& progress,
                               std::function<StopTimes(bool engine_finished)> let_go) {
  auto writer =
      TraceWriter::create(options.path, options.overwrite,
                          {target.identity(), plan, options.engine, WHOMAP_VERSION, monotonic_ns()});
  if (!writer) return tl::make_unexpected(writer.error());
  return Recorder(target, source, options, std::move(*writer)).run(progress, std::move(let_go));
}

}  // namespace whomap
