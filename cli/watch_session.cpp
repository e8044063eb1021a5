// SPDX-License-Identifier: Apache-2.0
#include "cli/watch_session.h"

#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/watch_screen.h"
#include "core/base/clock.h"
#include "core/base/version.h"
#include "core/match/quantity.h"
#include "core/process/permission.h"
#include "core/report/layout.h"
#include "core/report/watch_json.h"
#include "core/report/watch_text.h"
#include "core/stub/stub_state.h"
#include "core/trace/watch_file.h"

namespace whomap::cli {
namespace {

using Clock = Sampler::Clock;

/// The live table's rates are of the last so many seconds; the summary's are of the whole watch.
constexpr double live_window_seconds = 600;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// The signals that end, stop or resize a watch, as a descriptor.
Result<UniqueFd> signals_as_fd() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP}) ::sigaddset(&signals, each);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return fail(ErrorCode::kernel_feature, "signalfd failed", {}, errno);
  return fd;
}

std::string_view name_of(WatchSort sort) {
  switch (sort) {
    case WatchSort::rate: return "rate";
    case WatchSort::resident: return "resident";
    case WatchSort::size: return "size";
    case WatchSort::name: return "class";
  }
  return {};
}

class Session {
 public:
  Session(const Target& target, const WatchOptions& options, const CommonOptions& common)
      : target_(target),
        options_(options),
        common_(common),
        sampler_(target, std::chrono::duration<double>(options.interval_seconds),
                 [&target] { return own_memory(target.identity()); }),
        mapping_limit_(max_map_count()) {}

  ExitStatus run() {
    auto signals = signals_as_fd();
    if (!signals) return report_error(signals.error());
    signals_ = std::move(*signals);
    if (auto opened = open_writers(); !opened) return report_error(opened.error());
    // Before the screen opens: a process that cannot be read is an error message, not an empty table.
    read(sampler_.read());
    if (error_ && tracker_.readings() == 0) return report_error(explained(*error_));
    if (!options_.json) {
      std::setlocale(LC_CTYPE, "");
      unicode_ = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
      if (!common_.quiet) screen_ = Screen::open(common_.use_color(STDOUT_FILENO));
    }
    show();
    if (options_.seconds) deadline_ = Clock::now() + to_duration(*options_.seconds);
    while (reason_.empty()) wait();
    last_reading();
    screen_.reset();
    return finish();
  }

 private:
  Result<void> open_writers() {
    WatchHeader header{target_.identity(), WHOMAP_VERSION, monotonic_ns(), options_.interval_seconds,
                       mapping_limit_};
    std::vector<std::string> paths;
    if (!options_.output.empty()) paths.push_back(options_.output);
    if (options_.json && options_.output != "-") paths.emplace_back("-");
    for (const std::string& path : paths) {
      auto writer = WatchWriter::create(path, common_.force, header);
      if (!writer) return tl::make_unexpected(writer.error());
      writers_.push_back(std::move(*writer));
    }
    return {};
  }

  void end(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
  }

  void keep(const Result<void>& written) {
    if (written || output_error_) return;
    output_error_ = written.error();
    end("output-failed");
  }

  void read(Result<Reading> reading) {
    if (!reading) {
      error_ = reading.error();
      end(error_->code == ErrorCode::process_replaced ? "target-exec"
          : error_->code == ErrorCode::process_ended || error_->code == ErrorCode::no_such_process
              ? "target-exited"
              : "error");
      return;
    }
    for (WatchWriter& writer : writers_) keep(writer.sample(tracker_.latest(), *reading));
    state_ = reading->state;
    if (!reading->snapshot.unparsed.empty()) unparsed_ += reading->snapshot.unparsed.size();
    if (reading->depth != Reading::Depth::status) {
      tracker_.add(std::move(reading->snapshot));
    } else {
      tracker_.add_totals(reading->snapshot.time_ns, reading->snapshot.totals, reading->snapshot.threads);
      if (reading->unchanged)
        tracker_.add_unchanged(reading->snapshot.time_ns, *reading->unchanged == Reading::Depth::smaps);
    }
    if (options_.until_growth && resident_growth(tracker_) >= static_cast<double>(*options_.until_growth))
      end("growth");
  }

  void wait() {
    pollfd waiting[] = {
        {signals_.get(), POLLIN, 0}, {target_.pidfd(), POLLIN, 0}, {screen_ ? STDIN_FILENO : -1, POLLIN, 0}};
    Clock::time_point wake = sampler_.next();
    if (deadline_) wake = std::min(wake, *deadline_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
    if (::poll(waiting, 3, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000))) < 0) return;
    if (waiting[0].revents != 0) take_signals();
    if (waiting[1].revents != 0) read(sampler_.read());
    if (waiting[2].revents != 0) take_keys((waiting[2].revents & (POLLHUP | POLLERR)) != 0);
    if (!reason_.empty()) return;
    if (deadline_ && Clock::now() >= *deadline_) return end("time");
    if (Clock::now() < sampler_.next()) return;
    read(sampler_.read());
    show();
  }

  void take_signals() {
    bool redraw = false;
    for (signalfd_siginfo info{}; ::read(signals_.get(), &info, sizeof info) == sizeof info;) {
      if (info.ssi_signo == SIGWINCH) {
        redraw = true;
      } else if (info.ssi_signo == SIGTSTP) {
        if (screen_)
          screen_->stop();
        else
          ::raise(SIGSTOP);
        redraw = true;
      } else {
        end("interrupted");
      }
    }
    // A storm of them is one redraw.
    if (redraw && screen_) {
      screen_->resized();
      draw();
    }
  }

  void take_keys(bool gone) {
    if (gone) return end("interrupted");  // the terminal was closed
    for (;;) {
      const auto key = screen_->key();
      if (!key) break;
      switch (*key) {
        case 'q': return end("quit");
        case 's': sort_ = static_cast<WatchSort>((static_cast<int>(sort_) + 1) % 4); break;
        case 'p': paused_ = !paused_; break;
        case ' ': read_now(); break;
        default: continue;
      }
      draw();
    }
  }

  /// Everything at once, as often as a tenth of the time may go into it: a key may be held down.
  void read_now() {
    const auto& cost = sampler_.cost().smaps;
    const double last = cost.count == 0 ? 0 : cost.seconds / static_cast<double>(cost.count);
    if (Clock::now() < read_now_after_) return;
    read(sampler_.read_all());
    read_now_after_ = Clock::now() + to_duration(std::max(0.1, last * 10));
    if (!paused_) make_view();
  }

  void make_view() {
    WatchViewOptions options;
    options.sort = sort_;
    options.window_seconds = live_window_seconds;
    options.recent_values = 8;
    view_ = view_of(tracker_, options);
  }

  void show() {
    if (common_.quiet || options_.json || writes_to_stdout()) return;
    if (screen_) {
      if (!paused_) make_view();
      draw();
    } else {
      make_view();
      std::fputs((watch_line(view_, state_text()) + "\n").c_str(), stdout);
      if (std::fflush(stdout) != 0)
        keep(fail(ErrorCode::output_unwritable, "cannot write standard output", {}, errno));
    }
  }

  [[nodiscard]] bool writes_to_stdout() const { return options_.output == "-"; }

  [[nodiscard]] std::string state_text() const {
    if (state_ == 'T') return "the process is stopped by job control";
    return {};
  }

  void draw() {
    if (!screen_) return;
    const std::size_t width = screen_->width();
    const std::size_t height = screen_->height();
    std::vector<WatchLine> lines;
    lines.push_back({cut(watch_headline(view_), width), WatchLine::Style::plain});
    if (height >= 6) {
      lines.push_back({facts(width), WatchLine::Style::plain});
      if (!state_text().empty()) lines.push_back({cut(state_text(), width), WatchLine::Style::growing});
      if (mappings_run_out(view_.regions, mapping_limit_))
        lines.push_back(
            {cut(mappings_text(view_.regions, mapping_limit_), width), WatchLine::Style::growing});
    }
    WatchTextOptions text;
    text.width = width;
    text.unicode = unicode_;
    const bool keys = height >= 4;
    const std::size_t left =
        height > lines.size() + (keys ? 2 : 1) ? height - lines.size() - (keys ? 2 : 1) : 0;
    sort_rows();
    for (WatchLine& line : watch_table(view_, text, left)) lines.push_back(std::move(line));
    while (keys && lines.size() + 1 < height) lines.push_back({});
    if (keys)
      lines.push_back({cut(fmt::format("q quit  s sort ({})  p {}  space read now", name_of(sort_),
                                       paused_ ? "go on (paused)" : "pause"),
                           width),
                       WatchLine::Style::head});
    screen_->draw(lines);
  }

  /// A view that is paused can still be sorted anew.
  void sort_rows() { sort_watch_rows(view_.rows, sort_); }

  [[nodiscard]] std::string facts(std::size_t width) const {
    return watch_facts(
        view_,
        {target_.pid(), target_.identity().comm, mapping_limit_, sampler_.cost().cpu_seconds,
         options_.interval_seconds, std::chrono::duration<double>(sampler_.smaps_interval()).count()},
        width);
  }

  static std::string cut(const std::string& text, std::size_t width) {
    return columns(text) <= width ? text : fit(text, width);
  }

  [[nodiscard]] bool process_is_gone() const {
    return reason_ == "target-exited" || reason_ == "target-exec";
  }

  /// What changed since the last reading of smaps belongs to the answer, where another one is cheap.
  void last_reading() {
    constexpr double too_slow = 2;
    if (process_is_gone() || reason_ == "error" || reason_ == "output-failed") return;
    const ReadingCost& smaps = sampler_.cost().smaps;
    if (smaps.count == 0 || smaps.seconds / static_cast<double>(smaps.count) < too_slow)
      read(sampler_.read_all());
    else
      notes_.emplace_back(
          "resident sizes are those of the last reading of smaps: another one would take too long");
  }

  ExitStatus finish() {
    WatchViewOptions whole;
    whole.recent_values = 8;
    const WatchView view = view_of(tracker_, whole);
    if (unparsed_ != 0)
      notes_.push_back(
          fmt::format("{} of /proc/PID/smaps were not understood", count_text(unparsed_, "line")));
    if (state_ == 'T') notes_.push_back(state_text());
    const WatchEnding ending{target_.identity(), reason_, sampler_.cost(), mapping_limit_, notes_};
    for (WatchWriter& writer : writers_)
      if (!output_error_) keep(writer.end(watch_end_record(view, ending)));
    if (!options_.json && !writes_to_stdout()) {
      WatchTextOptions text;
      text.width = static_cast<std::size_t>(terminal_width(STDOUT_FILENO));
      text.color = common_.use_color(STDOUT_FILENO);
      text.unicode = unicode_ && ::isatty(STDOUT_FILENO) == 1;
      keep(write_result("-", false, watch_summary(view, ending, text)));
    }
    if (output_error_) return report_error(*output_error_);
    say_written();
    if (reason_ == "interrupted") return ExitStatus::interrupted;
    if (error_) return report_error(explained(*error_));
    if (reason_ == "growth") return ExitStatus::done;
    if (options_.until_growth) return ExitStatus::negative;
    return saw_growth(tracker_) ? ExitStatus::done : ExitStatus::negative;
  }

  void say_written() const {
    if (common_.quiet || options_.output.empty() || writes_to_stdout()) return;
    std::string text = fmt::format("whomap: wrote {}: {}", printable(options_.output),
                                   count_text(tracker_.readings(), "reading"));
    if (!process_is_gone())
      text +=
          fmt::format("; next: whomap trace -p {} --regions {}", target_.pid(), printable(options_.output));
    std::fputs((text + "\n").c_str(), stderr);
  }

  /// Of a refusal: which rule it was.
  [[nodiscard]] Error explained(const Error& error) const {
    if (error.code != ErrorCode::not_permitted) return error;
    return attach_obstacle(read_access_facts(target_)).value_or(error);
  }

  const Target& target_;
  const WatchOptions& options_;
  const CommonOptions& common_;
  Sampler sampler_;
  RegionTracker tracker_;
  std::vector<WatchWriter> writers_;
  UniqueFd signals_;
  std::unique_ptr<Screen> screen_;
  std::optional<std::uint64_t> mapping_limit_;
  std::optional<Clock::time_point> deadline_;
  Clock::time_point read_now_after_{};
  WatchView view_;
  WatchSort sort_ = WatchSort::rate;
  std::string reason_;
  std::optional<Error> error_, output_error_;
  std::vector<std::string> notes_;
  std::uint64_t unparsed_ = 0;
  char state_ = '?';
  bool unicode_ = false, paused_ = false;
};

}  // namespace

ExitStatus watch(const Target& target, const WatchOptions& options, const CommonOptions& common) {
  return Session(target, options, common).run();
}

}  // namespace whomap::cli
