// SPDX-License-Identifier: Apache-2.0
// What the parsers of other tools' logs have in common: they take lines and hand on calls.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/symbols/frame.h"

namespace whomap {

enum class LogKind { gdb_log, bpftrace, perf_script, strace };

/// One call that a log tells of. Arguments that the log does not have are 0; an mmap or mremap that succeeds
/// has no length of 0 (man 2 mmap), so that readers can tell.
struct LoggedCall {
  pid_t pid = 0;  ///< 0: the log does not say
  pid_t tid = 0;
  /// Nanoseconds of the log's clock; where it has none, 1000 times the line number: the order is right then.
  /// Equal where only the return is known.
  std::uint64_t enter_ns = 0, exit_ns = 0;
  bool timed = false;  ///< the two are times
  std::int64_t number = 0;
  std::array<std::uint64_t, 6> arguments{};
  std::uint64_t result = 0;   ///< as in rax
  std::vector<Frame> frames;  ///< innermost first
  std::optional<std::string> truncated;
};

enum class LogProblem {
  unreadable,     ///< a line of no known shape
  unpaired,       ///< a call of which only the start or only the end is there
  mispaired,      ///< a result that the call cannot have returned
  other_process,  ///< a call of another process than the one the trace is of
  no_arguments,   ///< a call whose arguments the log does not have
  mixed_lines,    ///< output of two processors in one line or block: which belongs to what cannot be told
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void call(LoggedCall call) = 0;
  virtual void problem(LogProblem problem, std::uint64_t line) = 0;
  /// The tool itself says that it lost events.
  virtual void lost(std::uint64_t count) = 0;
  virtual void note(const std::string& text) = 0;
};

/// Takes the lines of a log in order, without their newlines.
class LogParser {
 public:
  virtual ~LogParser() = default;
  virtual void line(std::string_view text, std::uint64_t number) = 0;
  /// After the last line: hands on what was waiting for more.
  virtual void end() = 0;
};

/// `sink` must outlive the parser. Parsers never fail: what they cannot read goes to LogSink::problem().
std::unique_ptr<LogParser> make_log_parser(LogKind kind, LogSink& sink);

std::unique_ptr<LogParser> make_gdb_log_parser(LogSink& sink);
std::unique_ptr<LogParser> make_bpftrace_parser(LogSink& sink);
std::unique_ptr<LogParser> make_perf_script_parser(LogSink& sink);
std::unique_ptr<LogParser> make_strace_parser(LogSink& sink);

}  // namespace whomap
