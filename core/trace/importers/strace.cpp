// SPDX-License-Identifier: Apache-2.0
// The output of strace -f, with or without -k, -o, -t, -tt, -ttt, -r, -T, -y, -X raw:
//   [pid  6195] 10:19:43.106749 mmap(NULL, 131072, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0
//   <unfinished ...> 6195  <... mmap resumed>) = 0x7fc095aec000 <0.000063>
//    > /usr/lib/x86_64-linux-gnu/libc.so.6(syscall+0x19) [0x101829]
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/process/syscalls.h"
#include "core/trace/importers/log_parser.h"
#include "core/trace/importers/log_text.h"

namespace whomap {
namespace {

constexpr std::uint64_t second = 1'000'000'000;

/// x86-64 values (include/uapi/asm-generic/mman*.h of Linux 6.1); only those that the ledger looks at.
std::optional<std::uint64_t> flag_value(std::string_view name) {
  struct Flag {
    std::string_view name;
    std::uint64_t value;
  };
  static constexpr Flag flags[] = {
      {"PROT_NONE", 0},           {"PROT_READ", 1},          {"PROT_WRITE", 2},
      {"PROT_EXEC", 4},           {"MAP_SHARED", 1},         {"MAP_PRIVATE", 2},
      {"MAP_SHARED_VALIDATE", 3}, {"MAP_FIXED", 0x10},       {"MAP_ANONYMOUS", 0x20},
      {"MAP_32BIT", 0x40},        {"MAP_GROWSDOWN", 0x100},  {"MAP_DENYWRITE", 0x800},
      {"MAP_EXECUTABLE", 0x1000}, {"MAP_LOCKED", 0x2000},    {"MAP_NORESERVE", 0x4000},
      {"MAP_POPULATE", 0x8000},   {"MAP_NONBLOCK", 0x10000}, {"MAP_STACK", 0x20000},
      {"MAP_HUGETLB", 0x40000},   {"MAP_SYNC", 0x80000},     {"MAP_FIXED_NOREPLACE", 0x100000},
      {"MREMAP_MAYMOVE", 1},      {"MREMAP_FIXED", 2},       {"MREMAP_DONTUNMAP", 4}};
  for (const Flag& flag : flags)
    if (flag.name == name) return flag.value;
  return std::nullopt;
}

/// "PROT_READ|PROT_WRITE", "MAP_HUGETLB|21<<MAP_HUGE_SHIFT", "0x22", "3</path>" (-y). Unknown names count
/// nothing.
std::uint64_t argument_value(std::string_view text) {
  std::uint64_t value = 0;
  while (!text.empty()) {
    const std::size_t bar = text.find('|');
    std::string_view part = text.substr(0, bar);
    text = bar == std::string_view::npos ? std::string_view{} : text.substr(bar + 1);
    if (const auto flag = flag_value(part)) {
      value |= *flag;
      continue;
    }
    if (const auto number = take_number(part)) {
      constexpr unsigned map_huge_shift = 26;
      value |= part.starts_with("<<MAP_HUGE_SHIFT") ? *number << map_huge_shift : *number;
    }
  }
  return value;
}

/// Splits at commas that lie in no string, path decoration or structure.
bool parse_arguments(std::string_view text, LoggedCall& call) {
  std::size_t index = 0;
  std::size_t start = 0;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    // "3</path>" of -y, and not "21<<MAP_HUGE_SHIFT"
    const char after = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '<' && after != '<' && (i == 0 || text[i - 1] != '<')) ++depth;
    if (c == '>' && depth > 0) --depth;
    if (c == '{' || c == '[' || c == '(') ++depth;
    if ((c == '}' || c == ']' || c == ')') && depth > 0) --depth;
    if (c != ',' || (depth != 0 && i != text.size())) continue;
    std::string_view part = text.substr(start, i - start);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty() && index < call.arguments.size()) call.arguments[index++] = argument_value(part);
    start = i + 1;
  }
  return !quoted;
}

/// "0x7f00", "0", "-1 ENOMEM (Cannot allocate memory)"; nullopt for "?".
std::optional<std::uint64_t> parse_result(std::string_view text) {
  if (take(text, "-1 E")) {
    const std::string_view name = text.substr(0, text.find(' '));
    constexpr int largest_errno = 133;
    for (int code = 1; code <= largest_errno; ++code) {
      const char* const known = ::strerrorname_np(code);
      if (known != nullptr && std::string_view(known + 1) == name) return static_cast<std::uint64_t>(-code);
    }
    constexpr std::uint64_t einval = static_cast<std::uint64_t>(-22);
    return einval;  // an error of a newer kernel is an error all the same
  }
  return take_number(text);
}

class StraceParser : public LogParser {
 public:
  explicit StraceParser(LogSink& sink) : sink_(sink) {}

  void line(std::string_view text, std::uint64_t number) override {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.starts_with(" > ")) return frame(text.substr(3), number);
    finish_call();
    if (text.empty() || text.starts_with("strace: ")) return;
    const auto tid = take_tid(text);
    const auto time = take_time(text);
    if (!time) return sink_.problem(LogProblem::unreadable, number);
    const std::uint64_t now = format_ == TimeFormat::none ? number * 1000 : *time;
    if (text.starts_with("+++ ") || text.starts_with("--- ")) {
      if (text.starts_with("+++ ")) unfinished_.erase(tid.value_or(0));
      return;
    }
    if (take(text, "<... ")) return resumed(text, tid.value_or(0), now, number);
    begun(text, tid.value_or(0), now, number);
  }

  void end() override {
    finish_call();
    for (const auto& [tid, begun] : unfinished_)
      if (memory_syscall(std::string_view(begun.name)) != nullptr)
        sink_.problem(LogProblem::unpaired, begun.line);
    if (named_frames_)
      sink_.note(
          "strace names a frame after the nearest exported symbol below it: names far from their start are "
          "marked "
          "as guessed");
    if (execs_ != 0)
      sink_.note(
          fmt::format("{} successful execve: what was mapped before belongs to another program", execs_));
  }

 private:
  enum class TimeFormat { unknown, none, clock, epoch, relative };
  struct Begun {
    std::string name;
    std::string arguments;
    std::uint64_t enter_ns = 0;
    std::uint64_t line = 0;
  };
  static constexpr std::size_t most_frames = 10'000;
  static constexpr std::uint64_t largest_pid = 4'194'304;  // the kernel's PID_MAX_LIMIT

  /// "[pid  6195] " or, with -o, "6195  ". A time of -r or -ttt is no pid: it has a point in it.
  static std::optional<pid_t> take_tid(std::string_view& text) {
    std::string_view rest = text;
    const bool bracket = take(rest, "[pid");
    skip_spaces(rest);
    const auto tid = take_decimal(rest);
    if (!tid || *tid > largest_pid) return std::nullopt;
    if (bracket ? !take(rest, "]") : !rest.starts_with(" ")) return std::nullopt;
    skip_spaces(rest);
    text = rest;
    return static_cast<pid_t>(*tid);
  }

  /// nullopt when the line has no time in the format of the first one.
  std::optional<std::uint64_t> take_time(std::string_view& text) {
    if (format_ == TimeFormat::none) return 0;
    std::string_view rest = text;
    skip_spaces(rest);
    const std::string_view digits = rest;
    auto first = take_decimal(rest);
    if (!first) {
      if (format_ == TimeFormat::unknown) format_ = TimeFormat::none;
      return format_ == TimeFormat::none ? std::optional<std::uint64_t>(0) : std::nullopt;
    }
    std::uint64_t ns = 0;
    if (take(rest, ":")) {
      const auto minutes = take_decimal(rest);
      const bool colon = take(rest, ":");
      const auto seconds = take_seconds(rest);
      if (*first > 23 || !minutes || *minutes > 59 || !colon || !seconds) return std::nullopt;
      ns = (*first * 3600 + *minutes * 60) * second + *seconds;
      if (!in_format(TimeFormat::clock)) return std::nullopt;
      // -t and -tt give the time of day: midnight goes on with the next day.
      if (ns + day_ + 12 * 3600 * second < last_ns_) day_ += 24 * 3600 * second;
      ns += day_;
    } else {
      rest = digits;
      const auto seconds = take_seconds(rest);
      if (!seconds) return std::nullopt;
      constexpr std::uint64_t year_2000 = 946'684'800 * second;
      const bool epoch = *seconds > year_2000;
      if (!in_format(epoch ? TimeFormat::epoch : TimeFormat::relative)) return std::nullopt;
      ns = epoch ? *seconds : last_ns_ + *seconds;
    }
    if (!take(rest, " ")) return std::nullopt;
    skip_spaces(rest);
    last_ns_ = std::max(last_ns_, ns);
    text = rest;
    return ns;
  }

  bool in_format(TimeFormat format) {
    if (format_ == TimeFormat::unknown) format_ = format;
    return format_ == format;
  }

  void begun(std::string_view text, pid_t tid, std::uint64_t now, std::uint64_t number) {
    const std::size_t open = text.find('(');
    const bool name_like =
        open != std::string_view::npos && open != 0 &&
        std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(open),
                    [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
    if (!name_like) return sink_.problem(LogProblem::unreadable, number);
    const std::string_view name = text.substr(0, open);
    std::string_view rest = text.substr(open + 1);
    constexpr std::string_view unfinished = " <unfinished ...>";
    if (rest.ends_with(unfinished)) {
      rest.remove_suffix(unfinished.size());
      if (unfinished_.size() < largest_pid)
        unfinished_[tid] = {std::string(name), interesting(name) ? std::string(rest) : "", now, number};
      return;
    }
    returned(name, rest, tid, now, now, number);
  }

  static bool makes_tasks(std::string_view name) {
    return name == "clone" || name == "clone3" || name == "fork" || name == "vfork";
  }

  static bool interesting(std::string_view name) {
    return memory_syscall(name) != nullptr || name == "execve" || makes_tasks(name);
  }

  void resumed(std::string_view text, pid_t tid, std::uint64_t now, std::uint64_t number) {
    const std::size_t name_end = text.find(" resumed>");
    const auto found = unfinished_.find(tid);
    if (name_end == std::string_view::npos) return sink_.problem(LogProblem::unreadable, number);
    const std::string_view name = text.substr(0, name_end);
    if (found == unfinished_.end() || found->second.name != name) {
      if (memory_syscall(name) != nullptr) sink_.problem(LogProblem::unpaired, number);
      return;
    }
    const Begun begun = std::move(found->second);
    unfinished_.erase(found);
    const std::string whole = begun.arguments + std::string(text.substr(name_end + 9));
    returned(name, whole, tid, begun.enter_ns, now, number);
  }

  /// `text`: "NULL, 4096, ...) = 0x7f00 <0.000063>"
  void returned(std::string_view name, std::string_view text, pid_t tid, std::uint64_t enter,
                std::uint64_t exit, std::uint64_t number) {
    if (!interesting(name)) return;
    const std::size_t equals = text.rfind(" = ");
    std::size_t close = equals;
    while (close != std::string_view::npos && close > 0 && text[close - 1] == ' ') --close;
    if (close == std::string_view::npos || close == 0 || text[close - 1] != ')')
      return sink_.problem(LogProblem::unreadable, number);
    const std::string_view arguments = text.substr(0, close - 1);
    std::string_view answer = text.substr(equals + 3);
    if (answer.starts_with("?")) return;  // the thread ended inside
    const auto result = parse_result(answer);
    if (!result) return sink_.problem(LogProblem::unreadable, number);
    if (name == "execve") return executed(tid, *result);
    if (makes_tasks(name)) return child(name, arguments, tid, *result);
    LoggedCall call;
    if (!parse_arguments(arguments, call)) return sink_.problem(LogProblem::unreadable, number);
    call.number = memory_syscall(name)->x86_64;
    call.tid = tid;
    call.pid = process_of(tid);
    call.timed = format_ != TimeFormat::none;
    call.enter_ns = enter;
    call.exit_ns = std::max(enter, exit);
    if (enter == exit && call.timed) call.exit_ns += took(answer);
    call.result = *result;
    call_ = std::move(call);
    any_call_ = true;
  }

  /// "... <0.000063>" of -T, in ns.
  static std::uint64_t took(std::string_view answer) {
    const std::size_t open = answer.rfind(" <");
    if (open == std::string_view::npos) return 0;
    std::string_view rest = answer.substr(open + 2);
    const auto ns = take_seconds(rest);
    return ns && rest == ">" ? *ns : 0;
  }

  /// A child that is no thread has memory of its own; after vfork only when it has exec'd.
  void child(std::string_view name, std::string_view arguments, pid_t parent, std::uint64_t result) {
    if (result == 0 || result > largest_pid || processes_.size() > largest_pid) return;
    const auto tid = static_cast<pid_t>(result);
    const auto has = [&](std::string_view flag) { return arguments.find(flag) != std::string_view::npos; };
    if (name == "vfork" || has("CLONE_VFORK"))
      vfork_children_.insert(tid);
    else if (!has("CLONE_VM"))
      processes_[tid] = tid;
    else if (const pid_t process = process_of(parent); process != 0)
      processes_[tid] = process;
  }

  void executed(pid_t tid, std::uint64_t result) {
    if (result != 0) return;
    if (vfork_children_.erase(tid) != 0)
      processes_[tid] = tid;
    else if (any_call_ && process_of(tid) == 0)
      ++execs_;
  }

  /// 0: the process that strace was started for, as far as the log tells.
  [[nodiscard]] pid_t process_of(pid_t tid) const {
    const auto found = processes_.find(tid);
    return found == processes_.end() ? 0 : found->second;
  }

  void frame(std::string_view text, std::uint64_t number) {
    if (!call_) return;  // of a call of no interest
    const std::size_t open = text.rfind(" [0x");
    std::string_view digits = open == std::string_view::npos ? std::string_view{} : text.substr(open + 4);
    const auto address = take_hex(digits);
    if (!address || digits != "]") return sink_.problem(LogProblem::unreadable, number);
    text = text.substr(0, open);
    Frame frame;
    set_address(frame, *address);
    if (text.ends_with(')') && text.find('(') != std::string_view::npos) {
      const std::size_t bracket = text.starts_with("/") ? text.find('(') : text.rfind('(');
      frame.module = text.substr(0, bracket);
      std::uint64_t offset = 0;
      const std::string_view name =
          without_offset(text.substr(bracket + 1, text.size() - bracket - 2), offset);
      if (!name.empty() && !name.starts_with("+")) {
        constexpr std::uint64_t far = 512;  // most functions are shorter
        frame.function = name;
        frame.guessed = offset > far;
        named_frames_ = true;
      }
    } else if (!call_->truncated) {
      call_->truncated = text;  // "unexpected_backtracing_error"
      return;
    }
    if (call_->frames.size() < most_frames) call_->frames.push_back(std::move(frame));
  }

  void finish_call() {
    if (!call_) return;
    LoggedCall call = std::move(*call_);
    call_.reset();
    mark_unfinished(call);
    sink_.call(std::move(call));
  }

  LogSink& sink_;
  TimeFormat format_ = TimeFormat::unknown;
  std::uint64_t last_ns_ = 0, day_ = 0;
  std::map<pid_t, Begun> unfinished_;
  std::map<pid_t, pid_t> processes_;  ///< of tasks with memory of their own
  std::set<pid_t> vfork_children_;
  std::optional<LoggedCall> call_;
  bool named_frames_ = false, any_call_ = false;
  std::uint64_t execs_ = 0;
};

}  // namespace

std::unique_ptr<LogParser> make_strace_parser(LogSink& sink) {
  return std::make_unique<StraceParser>(sink);
}

}  // namespace whomap
