// SPDX-License-Identifier: Apache-2.0
// The output of the published bpftrace script, and of those that print the same lines:
//   Stack trace:
//           7ffff7d6b88d syscall+29 (/usr/lib/x86_64-linux-gnu/libc.so.6)      (or, without "perf":
//           syscall+29)
//   PID/TID: 441359 441359 | ENTER mmap(addr=(nil), len=151552, prot=3, flags=34, fd=-1, off=0)
//   PID/TID: 441359 441359 | EXIT mmap: ret=0x7fd8a78ee000
// The published script prints mremap without "ENTER " and without its parenthesis. Every printf is one record
// of its processor's buffer, so lines of two processors may be mixed.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/process/syscalls.h"
#include "core/trace/importers/log_parser.h"
#include "core/trace/importers/log_text.h"

namespace whomap {
namespace {

/// Position of a named argument in the call.
std::optional<std::size_t> argument_place(std::string_view call, std::string_view name) {
  struct Place {
    std::string_view call, name;
    std::size_t at;
  };
  // Names of the tracepoints' fields: /sys/kernel/tracing/events/syscalls/sys_enter_*/format.
  static constexpr Place places[] = {
      {"mmap", "addr", 0},    {"mmap", "len", 1},        {"mmap", "prot", 2},      {"mmap", "flags", 3},
      {"mmap", "fd", 4},      {"mmap", "off", 5},        {"munmap", "addr", 0},    {"munmap", "len", 1},
      {"mremap", "addr", 0},  {"mremap", "old_addr", 0}, {"mremap", "old_len", 1}, {"mremap", "new_len", 2},
      {"mremap", "flags", 3}, {"mremap", "new_addr", 4}, {"brk", "brk", 0},        {"brk", "addr", 0},
      {"shmat", "shmid", 0},  {"shmat", "shmaddr", 1},   {"shmdt", "shmaddr", 0},  {"mprotect", "start", 0},
      {"mprotect", "len", 1}, {"mprotect", "prot", 2},   {"madvise", "start", 0},  {"madvise", "len_in", 1}};
  for (const Place& place : places)
    if (place.call == call && place.name == name) return place.at;
  return std::nullopt;
}

class BpftraceParser : public LogParser {
 public:
  explicit BpftraceParser(LogSink& sink) : sink_(sink) {}

  void line(std::string_view text, std::uint64_t number) override {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.starts_with("PID/TID: ")) return event(text, number);
    if (text == "Stack trace:") {
      ++stacks_waiting_;
      stack_.clear();
      in_stack_ = true;
      return;
    }
    if (text.empty() || text.starts_with("Attaching ")) return;
    std::string_view rest = text;
    if (take(rest, "Lost ")) {
      const auto count = take_decimal(rest);
      if (count && rest.starts_with(" events")) return sink_.lost(*count);
    }
    skip_spaces(rest);
    auto frame = in_stack_ ? parse_frame(rest) : std::nullopt;
    if (!frame || stack_.size() >= most_frames) return sink_.problem(LogProblem::unreadable, number);
    stack_.push_back(std::move(*frame));
  }

  void end() override {
    for (const auto& [tid, call] : entered_) sink_.problem(LogProblem::unpaired, call.exit_ns / 1000);
  }

 private:
  static constexpr std::size_t most_frames = 10'000;
  static constexpr std::size_t most_threads = 4'000'000;  // the kernel's PID_MAX_LIMIT

  /// "7ffff7d6b88d syscall+29 (/usr/lib/x86_64-linux-gnu/libc.so.6)" of ustack(perf); "syscall+29", or
  /// "0x7ffff7d6b88d" where there is no symbol, of ustack.
  static std::optional<Frame> parse_frame(std::string_view text) {
    std::string_view rest = text;
    if (const auto address = take_hex(rest); address && take(rest, " ")) return symbol_frame(*address, rest);
    Frame frame;
    rest = text;
    if (take(rest, "0x")) {
      const auto address = take_hex(rest);
      if (!address || !rest.empty()) return std::nullopt;
      set_address(frame, *address);
      return frame;
    }
    const std::size_t plus = text.rfind('+');
    if (plus == std::string_view::npos || plus == 0) return std::nullopt;
    rest = text.substr(plus + 1);
    if (!take_decimal(rest) || !rest.empty()) return std::nullopt;
    frame.function = text.substr(0, plus);
    return frame;
  }

  void event(std::string_view text, std::uint64_t number) {
    in_stack_ = false;
    take(text, "PID/TID: ");
    const auto pid = take_decimal(text);
    const bool spaced = take(text, " ");
    const auto tid = take_decimal(text);
    if (!pid || !spaced || !tid || *pid > most_threads || *tid > most_threads || !take(text, " | "))
      return sink_.problem(LogProblem::unreadable, number);
    // Another processor's line begins inside this one.
    if (text.find("PID/TID: ") != std::string_view::npos)
      return sink_.problem(LogProblem::mixed_lines, number);
    const auto thread = static_cast<pid_t>(*tid);
    if (take(text, "EXIT ")) return exit_event(text, thread, number);
    const bool said = take(text, "ENTER ");
    const std::size_t name_end = std::min(text.find('('), text.find("old_addr="));
    if (name_end == std::string_view::npos || (!said && !text.starts_with("mremap")))
      return sink_.problem(LogProblem::unreadable, number);
    const std::string_view name = text.substr(0, name_end);
    text.remove_prefix(name_end);
    take(text, "(");
    LoggedCall call;
    call.pid = static_cast<pid_t>(*pid);
    call.tid = thread;
    call.enter_ns = call.exit_ns = number * 1000;
    const MemorySyscall* const known = memory_syscall(name);
    if (known == nullptr || !arguments(name, text, call)) {
      entered_.erase(thread);
      return sink_.problem(LogProblem::unreadable, number);
    }
    call.number = known->x86_64;
    claim_stack(call, number);
    const auto [at, fresh] = entered_.insert_or_assign(thread, std::move(call));
    if (!fresh) sink_.problem(LogProblem::unpaired, number);
  }

  /// "addr=(nil), len=151552, prot=3)"
  static bool arguments(std::string_view name, std::string_view text, LoggedCall& call) {
    for (;;) {
      const std::size_t equals = text.find('=');
      if (equals == std::string_view::npos) return false;
      const auto place = argument_place(name, text.substr(0, equals));
      text.remove_prefix(equals + 1);
      const auto value = take_number(text);
      if (!value) return false;
      if (place) call.arguments[*place] = *value;
      if (take(text, ")")) return text.empty();
      if (!take(text, ", ")) return false;
    }
  }

  /// The stack that was printed last is this call's, if only one is waiting.
  void claim_stack(LoggedCall& call, std::uint64_t number) {
    if (stacks_waiting_ == 1) {
      call.frames = std::exchange(stack_, {});
      stacks_waiting_ = 0;
    } else if (stacks_waiting_ > 1) {
      call.truncated = "two stacks were printed at once, and which is this call's cannot be told";
      sink_.problem(LogProblem::mixed_lines, number);
      if (++claimed_ == stacks_waiting_) stacks_waiting_ = claimed_ = 0;
    }
  }

  void exit_event(std::string_view text, pid_t thread, std::uint64_t number) {
    const std::size_t colon = text.find(": ret=");
    if (colon == std::string_view::npos) return sink_.problem(LogProblem::unreadable, number);
    const MemorySyscall* const known = memory_syscall(text.substr(0, colon));
    text.remove_prefix(colon + 6);
    const auto result = take_number(text);
    if (known == nullptr || !result || !text.empty()) return sink_.problem(LogProblem::unreadable, number);
    const auto entered = entered_.find(thread);
    if (entered == entered_.end() || entered->second.number != known->x86_64)
      return sink_.problem(LogProblem::unpaired, number);
    LoggedCall call = std::move(entered->second);
    entered_.erase(entered);
    call.exit_ns = number * 1000;
    call.result = *result;
    mark_unfinished(call);
    sink_.call(std::move(call));
  }

  LogSink& sink_;
  std::map<pid_t, LoggedCall> entered_;
  std::vector<Frame> stack_;
  bool in_stack_ = false;
  std::uint64_t stacks_waiting_ = 0, claimed_ = 0;
};

}  // namespace

std::unique_ptr<LogParser> make_bpftrace_parser(LogSink& sink) {
  return std::make_unique<BpftraceParser>(sink);
}

}  // namespace whomap
