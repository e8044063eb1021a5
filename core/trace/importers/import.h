// SPDX-License-Identifier: Apache-2.0
// Logs of other tools as whomap traces, so that `whomap match` answers from what was recorded already.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/trace/importers/log_parser.h"

namespace whomap {

/// "gdb-log", "bpftrace", "perf-script", "strace". Errors: usage, naming the kinds there are.
Result<LogKind> log_kind(std::string_view name);
std::string_view name_of(LogKind kind);

struct ImportOptions {
  LogKind kind = LogKind::gdb_log;
  std::string output;  ///< path of the trace file, "-" for standard output
  bool overwrite = false;
  /// Only the calls of this process, where the log has several. nullopt: the process of the first call.
  std::optional<pid_t> pid;
};

struct ImportSummary {
  std::uint64_t lines = 0, events = 0, stacks = 0, threads = 0;
  std::uint64_t failed_calls = 0;
  std::uint64_t mispaired = 0;   ///< results that the call beside them cannot have returned; left out
  std::uint64_t unreadable = 0;  ///< lines of no known shape
  std::uint64_t unpaired = 0;    ///< calls of which only the start or only the end is there; left out
  std::uint64_t lost = 0;        ///< as the other tool counted them
  std::uint64_t other_processes = 0;
};

/// Reads a log, streaming (memory grows with distinct stacks and with calls on their way, not with events),
/// and writes a trace. Errors: input_unreadable; input_kind (another kind, saying which, or no call in it; no
/// file is written then); output_exists, output_unwritable.
Result<ImportSummary> import_log(const std::string& path, const ImportOptions& options);

}  // namespace whomap
