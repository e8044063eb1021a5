// SPDX-License-Identifier: Apache-2.0
// The log of a GDB script: backtraces, each followed by the value that a system call returned.
//   [Switching to Thread 0x7f1a318136c0 (LWP 6089)]
//   Syscall number 9 thread 1 args 0x0 0x10000 0x3 0x22 0xffffffffffffffff 0x0     (whomap script --plain)
//   #0  syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38
//   #1  0x00007ffc61759ac2 in ucm_orig_mmap_syscall () from /opt/libucm.so.0
//   Syscall returned: rax = 0x7f2fdc24f000
// A script that watches a number in a register (rdi == 9) prints no number and no arguments: its records are
// mmap calls of unknown length.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/trace/importers/log_parser.h"
#include "core/trace/importers/log_text.h"

namespace whomap {
namespace {

constexpr std::int64_t nr_mmap = 9;

/// What GDB says between the records.
bool is_gdb_talk(std::string_view line) {
  constexpr std::array<std::string_view, 24> starts{"Breakpoint ",  "Temporary breakpoint ",
                                                    "Thread ",      "[New ",
                                                    "[Thread ",     "[Inferior ",
                                                    "[Attaching",   "[Detaching",
                                                    "[Switching",   "Detaching",
                                                    "Attaching",    "Continuing",
                                                    "Copying ",     "Redirecting ",
                                                    "Using ",       "warning: ",
                                                    "Reading ",     "--Type <RET>",
                                                    "A debugging ", "Quit",
                                                    "(gdb)",        "[Remote",
                                                    "Download",     "process "};
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view start) { return line.starts_with(start); });
}

/// Where the arguments begin, the last group in parentheses that stands alone: C++ names have groups of their
/// own, and quoted arguments hold any character.
std::size_t arguments_of(std::string_view text) {
  std::size_t open = std::string_view::npos;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (depth > 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '(') {
      if (depth++ == 0 && i > 0 && text[i - 1] == ' ') open = i;
    } else if (c == ')' && depth > 0) {
      --depth;
    }
  }
  return open;
}

/// Text between "#12  " and the end of the line.
std::optional<Frame> parse_frame(std::string_view text, bool& has_address) {
  Frame frame;
  has_address = false;
  if (text.starts_with("0x")) {
    std::string_view rest = text.substr(2);
    const auto address = take_hex(rest);
    if (!address || !take(rest, " in ")) return std::nullopt;
    set_address(frame, *address);
    has_address = true;
    text = rest;
  }
  if (text == "<signal handler called>") {
    frame.function = text;
    return frame;
  }
  if (const std::size_t from = text.rfind(") from "); from != std::string_view::npos) {
    frame.module = text.substr(from + 7);
    text = text.substr(0, from + 1);
  } else if (const std::size_t at = text.rfind(") at "); at != std::string_view::npos) {
    const std::string_view place = text.substr(at + 5);
    const std::size_t colon = place.rfind(':');
    std::string_view digits = colon == std::string_view::npos ? std::string_view{} : place.substr(colon + 1);
    const auto line = take_decimal(digits);
    frame.file = place.substr(0, line ? colon : place.size());
    if (line && digits.empty() && *line <= 0xFFFFFFFF) frame.line = static_cast<std::uint32_t>(*line);
    text = text.substr(0, at + 1);
  }
  if (!text.ends_with(")")) return std::nullopt;
  const std::size_t open = arguments_of(text);
  if (open == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(0, open - 1);
  if (name.empty()) return std::nullopt;
  if (name != "??") frame.function = name;
  return frame;
}

class GdbLogParser : public LogParser {
 public:
  explicit GdbLogParser(LogSink& sink) : sink_(sink) {}

  void line(std::string_view text, std::uint64_t number) override {
    if (text.ends_with('\r')) text.remove_suffix(1);
    // GDB breaks long lines where its terminal ends and indents the rest.
    if (!frame_line_.empty() && text.starts_with("    ")) {
      skip_spaces(text);
      if (frame_line_.size() + text.size() < longest_frame) frame_line_.append(" ").append(text);
      return;
    }
    finish_frame();
    if (text.starts_with("#")) return begin_frame(text, number);
    if (take(text, "Syscall returned: rax = 0x")) return returned(text, number);
    if (take(text, "Syscall number ")) return announced(text, number);
    if (text.starts_with("Backtrace stopped: ") || text.starts_with("(More stack frames follow")) {
      call_.truncated = text;
      return;
    }
    if (text.starts_with("[Switching to ")) {
      const std::size_t lwp = text.find("LWP ");
      if (lwp != std::string_view::npos) text.remove_prefix(lwp + 4);
      if (const auto tid = take_decimal(text); lwp != std::string_view::npos && tid) switch_to(*tid);
      return;
    }
    if (text.empty() || is_gdb_talk(text)) return;
    // Where a thread stands when GDB attaches: "0x00007f... in clock_nanosleep () from ...", "30\tin
    // ../syscall.S".
    bool has_address = false;
    if (text.find('\t') != std::string_view::npos || parse_frame(text, has_address)) return;
    sink_.problem(LogProblem::unreadable, number);
  }

  void end() override {
    finish_frame();
    if (in_block_) sink_.problem(LogProblem::unpaired, block_line_);
    if (without_number_ != 0)
      sink_.note(
          fmt::format("{} of the calls are taken for mmap, as the published script watches it; the log has "
                      "no lengths for them",
                      without_number_));
    if (without_number_ != 0 && threads_.size() > 1)
      sink_.note(
          fmt::format("the log has {} threads, and a script that waits for any thread's return may show "
                      "another call's value",
                      threads_.size()));
  }

 private:
  static constexpr std::size_t longest_frame = 1 << 20;
  static constexpr std::size_t most_frames = 100'000;

  void switch_to(std::uint64_t tid) {
    if (tid > 0x7FFFFFFF) return;
    tid_ = static_cast<pid_t>(tid);
    if (threads_.size() < most_frames) threads_.insert(tid_);
  }

  void begin_frame(std::string_view text, std::uint64_t number) {
    std::string_view rest = text.substr(1);
    const auto index = take_decimal(rest);
    if (!index || !rest.starts_with(" ")) return sink_.problem(LogProblem::unreadable, number);
    if (*index == 0) {
      if (in_block_) sink_.problem(LogProblem::unpaired, block_line_);
      call_.frames.clear();
      call_.truncated.reset();
      in_block_ = true;
      block_line_ = number;
    }
    skip_spaces(rest);
    frame_line_ = rest;
    frame_index_ = *index;
    frame_number_ = number;
  }

  void finish_frame() {
    if (frame_line_.empty()) return;
    bool has_address = false;
    auto frame = parse_frame(frame_line_, has_address);
    frame_line_.clear();
    if (!frame || frame_index_ != call_.frames.size() || call_.frames.size() >= most_frames) {
      sink_.problem(LogProblem::unreadable, frame_number_);
      if (in_block_ && !call_.truncated) call_.truncated = "a frame could not be read";
      return;
    }
    // GDB leaves the address out where the frame within was inlined into this one: they share it.
    if (!has_address && !call_.frames.empty()) {
      Frame& inner = call_.frames.back();
      inner.inlined = true;
      frame->offset = inner.offset;
      frame->run_time = inner.run_time;
      if (inner.module.empty()) inner.module = frame->module;
    }
    call_.frames.push_back(std::move(*frame));
  }

  void announced(std::string_view text, std::uint64_t number) {
    LoggedCall call;
    const std::uint64_t syscall = take_decimal(text).value_or(UINT64_MAX);
    bool whole = syscall < 1'000'000 && take(text, " thread ");
    const std::uint64_t thread = whole ? take_decimal(text).value_or(UINT64_MAX) : UINT64_MAX;
    whole = thread <= 0x7FFFFFFF && take(text, " args");
    for (std::uint64_t& argument : call.arguments) {
      whole = whole && take(text, " 0x");
      const auto value = whole ? take_hex(text) : std::nullopt;
      whole = value.has_value();
      argument = value.value_or(0);
    }
    if (!whole) return sink_.problem(LogProblem::unreadable, number);
    if (in_block_) sink_.problem(LogProblem::unpaired, block_line_);
    in_block_ = false;
    call.number = static_cast<std::int64_t>(syscall);
    call.tid = static_cast<pid_t>(thread);
    call_ = std::move(call);
    announced_ = true;
  }

  void returned(std::string_view text, std::uint64_t number) {
    const auto value = take_hex(text);
    const bool cut = !value || !text.empty();
    const bool alone = !in_block_ && !announced_;
    LoggedCall call = std::move(call_);
    call_ = {};
    const bool announced = std::exchange(announced_, false);
    in_block_ = false;
    if (cut) return sink_.problem(LogProblem::unreadable, number);
    if (alone) return sink_.problem(LogProblem::unpaired, number);
    if (!announced) {
      call.number = nr_mmap;
      ++without_number_;
    }
    if (tid_ != 0) call.tid = tid_;
    call.result = *value;
    call.enter_ns = call.exit_ns = number * 1000;
    mark_unfinished(call);
    sink_.call(std::move(call));
  }

  LogSink& sink_;
  LoggedCall call_;
  bool in_block_ = false;   ///< a backtrace has begun
  bool announced_ = false;  ///< call_ has a number and arguments
  std::uint64_t block_line_ = 0;
  std::string frame_line_;
  std::uint64_t frame_index_ = 0, frame_number_ = 0;
  pid_t tid_ = 0;
  std::set<pid_t> threads_;
  std::uint64_t without_number_ = 0;
};

}  // namespace

std::unique_ptr<LogParser> make_gdb_log_parser(LogSink& sink) {
  return std::make_unique<GdbLogParser>(sink);
}

}  // namespace whomap
