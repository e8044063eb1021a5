// SPDX-License-Identifier: Apache-2.0
// Measures one process, or a process with all its descendants.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/verify/run.h"

namespace whomap {

enum class Detail {
  light,  ///< /proc/PID/status and the CPU clock: takes no lock of the process
  full,   ///< also smaps_rollup and maps, which hold the process's mmap lock while they are read
};

class Meter {
 public:
  /// `exclude` and its descendants are not part of the tree: whomap itself when it measures a shell it runs
  /// in.
  Meter(Target target, bool tree, pid_t exclude);

  /// `point` is set by `detail`; `seconds` counts from the first call. Errors: process_ended,
  /// process_replaced, and those of reading /proc. Descendants that end meanwhile are not an error.
  Result<Measurement> measure(Detail detail);

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] bool tree() const { return tree_; }
  /// What could not be measured and why, each once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// How long the last call took.
  [[nodiscard]] std::chrono::steady_clock::duration last_cost() const { return last_cost_; }

 private:
  void add_details(pid_t pid, MemoryUse& memory);
  void note(std::string text);

  Target target_;
  bool tree_;
  pid_t exclude_;
  bool rollup_too_slow_ = false;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::duration last_cost_{};
  std::vector<std::string> notes_;
};

/// The LazyFree line of /proc/PID/smaps_rollup in bytes.
std::optional<std::uint64_t> parse_lazy_free(std::string_view smaps_rollup);

}  // namespace whomap
