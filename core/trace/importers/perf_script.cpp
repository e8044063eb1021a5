// SPDX-License-Identifier: Apache-2.0
// The output of perf script for the tracepoints of system calls:
//   mt  6138 [001]   317.073094:   syscalls:sys_enter_mmap: addr: 0x00000000, len: 0x00002000, prot:
//   0x00000003, ...
//                  20ca3 __mmap64+0x13 (inlined)
//                   a780 __minimal_malloc+0xa0 (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)
//
//   mt  6138 [001]   317.073104:    syscalls:sys_exit_mmap: 0x7f4a18546000
// Recorded with the exits alone, a call's arguments are not known. With -F +pid the second field is PID/TID.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/process/syscalls.h"
#include "core/trace/importers/log_parser.h"
#include "core/trace/importers/log_text.h"

namespace whomap {
namespace {

/// One event's first line.
struct Header {
  pid_t pid = 0, tid = 0;
  std::uint64_t time_ns = 0;
  bool timed = false;
  bool enter = false;
  std::int64_t number = 0;
  std::string_view rest;  ///< arguments or result
};

/// "name  6138/6140 [001]   317.073094:" -> ids and time; the name may hold spaces and digits.
bool parse_who(std::string_view text, Header& header) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.ends_with(':')) {
    text.remove_suffix(1);
    const std::size_t space = text.rfind(' ');
    std::string_view time = text.substr(space == std::string_view::npos ? 0 : space + 1);
    if (const auto ns = take_seconds(time); ns && time.empty()) {
      header.time_ns = *ns;
      header.timed = true;
      text = text.substr(0, space == std::string_view::npos ? 0 : space);
    }
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.ends_with(']')) {  // the processor
    const std::size_t open = text.rfind('[');
    if (open == std::string_view::npos) return false;
    text = text.substr(0, open);
    while (text.ends_with(' ')) text.remove_suffix(1);
  }
  std::string_view ids = text.substr(text.rfind(' ') == std::string_view::npos ? 0 : text.rfind(' ') + 1);
  constexpr std::uint64_t largest_pid = 4'194'304;  // the kernel's PID_MAX_LIMIT
  const auto first = take_decimal(ids);
  if (!first || *first > largest_pid) return false;
  header.tid = static_cast<pid_t>(*first);
  if (take(ids, "/")) {
    const auto second = take_decimal(ids);
    if (!second || *second > largest_pid) return false;
    header.pid = header.tid;
    header.tid = static_cast<pid_t>(*second);
  }
  return ids.empty();
}

enum class HeaderKind { none, other_event, call };

HeaderKind parse_header(std::string_view line, Header& header) {
  std::size_t at = line.find("syscalls:sys_");
  if (at == std::string_view::npos) return HeaderKind::none;
  // "raw_syscalls:" ends in the same letters.
  const bool raw = at >= 4 && line.substr(at - 4, 4) == "raw_";
  if (!parse_who(line.substr(0, raw ? at - 4 : at), header)) return HeaderKind::none;
  std::string_view rest = line.substr(at + 13);
  header.enter = take(rest, "enter");
  if (!header.enter && !take(rest, "exit")) return HeaderKind::none;
  if (raw) {
    if (!take(rest, ": NR ")) return HeaderKind::none;
    const auto number = take_decimal(rest);
    if (!number || *number > 100'000) return HeaderKind::none;
    header.number = static_cast<std::int64_t>(*number);
    header.rest = rest;
    return memory_syscall(header.number) != nullptr ? HeaderKind::call : HeaderKind::other_event;
  }
  const std::size_t colon = rest.find(':');
  if (!take(rest, "_") || colon == std::string_view::npos) return HeaderKind::none;
  const MemorySyscall* const known = memory_syscall(rest.substr(0, colon - 1));
  if (known == nullptr) return HeaderKind::other_event;
  header.number = known->x86_64;
  header.rest = rest.substr(colon);
  return HeaderKind::call;
}

/// "addr: 0x0, len: 0x2000" in the order of the call's arguments; "(0, 2000, 3)" where raw.
bool parse_arguments(std::string_view text, LoggedCall& call) {
  skip_spaces(text);
  const bool raw = take(text, "(");
  for (std::size_t i = 0; i < call.arguments.size() && !text.empty(); ++i) {
    std::optional<std::uint64_t> value;
    if (raw) {
      value = take_hex(text);
    } else {
      const std::size_t colon = text.find(": ");
      if (colon == std::string_view::npos) return false;
      text.remove_prefix(colon + 2);
      value = take_number(text);
    }
    if (!value) return false;
    call.arguments[i] = *value;
    if (raw && take(text, ")")) return true;
    if (!take(text, ", ")) break;
  }
  return text.empty();
}

class PerfScriptParser : public LogParser {
 public:
  explicit PerfScriptParser(LogSink& sink) : sink_(sink) {}

  void line(std::string_view text, std::uint64_t number) override {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) return finish_event();
    if (text.starts_with("#")) return;
    if (text.front() == '\t' || text.starts_with("      ")) {
      if (frame(text) || skipping_) return;
      // An event may stand behind as many spaces: perf aligns names to the right.
    }
    finish_event();
    Header header;
    switch (parse_header(text, header)) {
      case HeaderKind::none: return sink_.problem(LogProblem::unreadable, number);
      case HeaderKind::other_event: skipping_ = true; return;
      case HeaderKind::call: return begin_event(header, number);
    }
  }

  void end() override {
    finish_event();
    for (const auto& [tid, call] : entered_) sink_.problem(LogProblem::unpaired, call.line);
  }

 private:
  struct Event {
    LoggedCall call;
    bool enter = false;
    std::uint64_t line = 0;
  };
  static constexpr std::size_t most_frames = 10'000;

  bool frame(std::string_view text) {
    skip_spaces(text);
    const auto address = take_hex(text);
    if (!address || !take(text, " ")) return false;
    auto frame = symbol_frame(*address, text);
    if (!frame) return false;
    if (event_ && event_->call.frames.size() < most_frames) event_->call.frames.push_back(std::move(*frame));
    return true;
  }

  void begin_event(const Header& header, std::uint64_t number) {
    Event event;
    event.enter = header.enter;
    event.line = number;
    LoggedCall& call = event.call;
    call.pid = header.pid;
    call.tid = header.tid;
    call.number = header.number;
    call.timed = header.timed;
    call.enter_ns = call.exit_ns = header.timed ? header.time_ns : number * 1000;
    std::string_view rest = header.rest;
    bool whole = false;
    if (header.enter) {
      take(rest, ":");
      whole = parse_arguments(rest, call);
    } else {
      take(rest, ":");
      skip_spaces(rest);
      take(rest, "= ");
      const auto result = take_number(rest);
      whole = result && rest.empty();
      call.result = result.value_or(0);
    }
    if (!whole) {
      skipping_ = true;
      return sink_.problem(LogProblem::unreadable, number);
    }
    event_ = std::move(event);
  }

  void finish_event() {
    skipping_ = false;
    if (!event_) return;
    Event event = std::move(*event_);
    event_.reset();
    name_modules(event.call.frames);
    const pid_t tid = event.call.tid;
    if (event.enter) {
      any_enter_ = true;
      const auto [at, fresh] = entered_.insert_or_assign(tid, std::move(event));
      if (!fresh) sink_.problem(LogProblem::unpaired, at->second.line);
      return;
    }
    LoggedCall call = std::move(event.call);
    const auto entered = entered_.find(tid);
    if (entered != entered_.end() && entered->second.call.number == call.number) {
      const LoggedCall& begun = entered->second.call;
      call.arguments = begun.arguments;
      call.enter_ns = std::min(begun.enter_ns, call.exit_ns);
      if (call.frames.empty()) call.frames = begun.frames;
      entered_.erase(entered);
    } else if (any_enter_) {
      // The start lies before the recording, or was lost: the arguments are unknown.
      return sink_.problem(LogProblem::unpaired, event.line);
    } else {
      sink_.problem(LogProblem::no_arguments, event.line);
    }
    mark_unfinished(call);
    sink_.call(std::move(call));
  }

  /// An inlined function is in the module of the function it was inlined into, which has the same address.
  /// perf also calls a function inlined that it knows by two names (mmap64 and __GI___mmap64), and then
  /// prints no frame that has a module: the next is another library's.
  static void name_modules(std::vector<Frame>& frames) {
    for (std::size_t i = frames.size(); i-- > 1;)
      if (frames[i - 1].inlined && frames[i - 1].offset == frames[i].offset)
        frames[i - 1].module = frames[i].module;
  }

  LogSink& sink_;
  std::optional<Event> event_;
  bool skipping_ = false;  ///< in an event of no interest
  bool any_enter_ = false;
  std::map<pid_t, Event> entered_;
};

}  // namespace

std::unique_ptr<LogParser> make_perf_script_parser(LogSink& sink) {
  return std::make_unique<PerfScriptParser>(sink);
}

}  // namespace whomap
