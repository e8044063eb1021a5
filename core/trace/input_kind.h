// SPDX-License-Identifier: Apache-2.0
// What a file looks like, so that a wrong one is refused by its name.
#pragma once

#include <string>
#include <string_view>

namespace whomap {

enum class InputKind {
  empty,
  whomap_trace,
  whomap_plan,
  whomap_report,
  whomap_watch,
  json,
  maps,
  smaps,
  pmap,        ///< with a line of column names (-x, -X, -XX)
  pmap_plain,  ///< without
  gdb_log,
  perf_script,
  perf_data,
  strace,
  bpftrace,
  gzip,
  elf,
  binary,
  text,
};

/// Judges by the first bytes of the file (64 KiB are plenty).
InputKind input_kind(std::string_view start);
/// "the log of a GDB script", "a whomap plan", ...
std::string_view describe(InputKind kind);

}  // namespace whomap
