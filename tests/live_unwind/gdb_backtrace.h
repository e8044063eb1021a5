// SPDX-License-Identifier: Apache-2.0
// The yardstick: GDB's own frames of a thread, and their difference from whomap's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/symbols/frame.h"
#include "core/unwind/unwinder.h"
#include "stopped_thread.h"

namespace whomap::test {

struct GdbFrame {
  std::uint64_t pc = 0;
  std::string name;  ///< without parameters, as bt prints it; empty: no symbol
  std::string file;  ///< base name
  std::uint32_t line = 0;
  std::string type;  ///< normal, inline, signal
};

/// Attaches GDB to the process, which must stay blocked meanwhile.
std::vector<GdbFrame> gdb_backtrace(pid_t pid, pid_t tid, int limit = 5000);

/// A demangled name without return type and parameters: what GDB prints in bt.
std::string without_parameters(const std::string& name);

struct Comparison {
  std::vector<GdbFrame> theirs;
  std::vector<GdbFrame> ours;
  std::string truncated;
  std::vector<std::string> differences;
  bool guessed = false;
};

/// Unwinds `tid` both ways. The innermost frame is symbolised at its pc, as GDB does (it cannot know that the
/// thread is at the return from a call).
Comparison compare_with_gdb(pid_t pid, pid_t tid, const StoppedThread& thread);

std::string to_text(const std::vector<GdbFrame>& frames);

}  // namespace whomap::test
