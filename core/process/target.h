// SPDX-License-Identifier: Apache-2.0
// Who the target is. A pid alone is not an identity: it is reused, and exec replaces what it runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/process/status.h"

namespace whomap {

struct TargetIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks since boot: field 22 of /proc/PID/stat (man 5 proc_pid_stat)
  std::string exe;               ///< where /proc/PID/exe points, as the kernel names it
  std::string comm;
  bool operator==(const TargetIdentity&) const = default;
};

/// A running process that whomap may look at, held by a pidfd so that its pid cannot come to mean
/// another process unnoticed.
class Target {
 public:
  /// Refuses kernel threads, zombies, whomap itself and pids that name a thread.
  static Result<Target> open(pid_t pid);

  [[nodiscard]] const TargetIdentity& identity() const { return identity_; }
  [[nodiscard]] pid_t pid() const { return identity_.pid; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

  /// Error when the process has ended (process_ended) or has exec'd (process_replaced).
  [[nodiscard]] Result<void> check() const;

  /// Tasks of the process; empty when it has ended.
  [[nodiscard]] std::vector<pid_t> threads() const;

 private:
  Target(TargetIdentity identity, UniqueFd pidfd, std::uint64_t exec_mark)
      : identity_(std::move(identity)), pidfd_(std::move(pidfd)), exec_mark_(exec_mark) {}

  TargetIdentity identity_;
  UniqueFd pidfd_;
  std::uint64_t exec_mark_ = 0;  ///< changes with exec: see target.cpp
};

/// Field 22 of the text of /proc/PID/stat; the name in field 2 may hold spaces and parentheses.
Result<std::uint64_t> parse_start_time(std::string_view stat_text);

}  // namespace whomap
