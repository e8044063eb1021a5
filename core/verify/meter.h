// SPDX-License-Identifier: Apache-2.0
// Measures one process, or a process with all its descendants.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/verify/held_memory.h"
#include "core/verify/process_table.h"
#include "core/verify/run.h"

namespace whomap {

enum class Detail {
  light,  ///< /proc/PID/status and the CPU clock: takes no lock of the process
  full,   ///< also smaps_rollup and maps, which hold the process's mmap lock while they are read
};

/// Which processes are measured.
struct TreeScope {
  bool tree = false;  ///< the process with all its descendants
  /// Its descendants are not part of the tree: whomap itself when it measures a shell it runs in.
  pid_t exclude = 0;
  /// "NAME=value" in the environment of a process that `exclude` started, and so of its orphans, which
  /// `exclude` adopts; empty when it was not started here.
  std::string mark;
};

class Meter {
 public:
  Meter(Target target, TreeScope scope);

  /// `point` is set by `detail`; `seconds` counts from the first call. Errors: process_ended,
  /// process_replaced, and those of reading /proc. Descendants that end meanwhile are not an error.
  Result<Measurement> measure(Detail detail);

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] bool tree() const { return scope_.tree; }
  /// What could not be measured and why, each once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// How long the last call took.
  [[nodiscard]] std::chrono::steady_clock::duration last_cost() const { return last_cost_; }

 private:
  void add_details(pid_t pid, MemoryUse& memory);
  void add_members(Detail detail, Measurement& at, HeldMemory& held);
  /// Descendants, and those that were once and are orphans now.
  std::vector<ProcessEntry> members(const std::vector<ProcessEntry>& table);
  void note_orphans(const std::vector<ProcessEntry>& tree, const std::vector<ProcessEntry>& table);
  void note(std::string text);

  Target target_;
  TreeScope scope_;
  std::map<pid_t, std::uint64_t> seen_;  ///< start times of the members so far
  bool rollup_too_slow_ = false;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::duration last_cost_{};
  std::vector<std::string> notes_;
};

/// The LazyFree line of /proc/PID/smaps_rollup in bytes.
std::optional<std::uint64_t> parse_lazy_free(std::string_view smaps_rollup);

}  // namespace whomap
