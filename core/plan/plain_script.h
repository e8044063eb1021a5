// SPDX-License-Identifier: Apache-2.0
// A GDB command file that needs no Python in GDB: readable, slow, for systems where nothing else is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan/plan.h"

namespace whomap {

struct PlainScriptOptions {
  double seconds = 10;
  std::optional<std::uint64_t> max_hits;
};

/// The text of the command file. What it prints is the log that `whomap import --from gdb-log` reads: for
/// each call a line "Syscall number N thread T args ...", GDB's backtrace, and "Syscall returned: rax =
/// 0x...".
std::string plain_gdb_script(const Plan& plan, const PlainScriptOptions& options);

}  // namespace whomap
