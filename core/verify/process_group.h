// SPDX-License-Identifier: Apache-2.0
// Programs that whomap starts, and that must not outlive it, however it ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

/// What to start. Standard input is /dev/null; signal mask and dispositions are the defaults.
struct Launch {
  std::vector<std::string> arguments;                            ///< [0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to whomap's own
  int output = -1;                                               ///< becomes standard output; -1: /dev/null
  int errors = -1;                                               ///< becomes standard error; -1: as output
  int death_signal = SIGKILL;                                    ///< sent to it when whomap dies
};

/// A child of this process, with a pidfd to wait on.
struct ChildProcess {
  pid_t pid = -1;
  UniqueFd pidfd;
};

/// How a child ended: "exit status 3", "killed by signal 9 (Killed)".
std::string ending_text(int wait_status);

/// Starts it in process group `group`, 0 for a new one. Error (usage) when it cannot be executed.
Result<ChildProcess> start_program(const Launch& what, pid_t group);

/// A process group of its own, led by a guard: a process of ours that does nothing but wait for the end of
/// whomap and then kills the whole group, itself included. So kill -9 of whomap leaves nothing behind; the
/// parent-death signal alone would only reach direct children, and not the server that a wrapper started. A
/// program that makes a group of its own (a daemon) leaves the guard's reach; end_strays() gets it unless
/// whomap was killed.
class ProcessGroup {
 public:
  static Result<ProcessGroup> create();
  ProcessGroup(ProcessGroup&& other) noexcept;
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;
  /// Kills what is left of the group, without patience.
  ~ProcessGroup();

  [[nodiscard]] Result<ChildProcess> start(const Launch& what) const { return start_program(what, guard_); }

  /// SIGTERM to all, SIGKILL to those that are still there after `patience_seconds`; reaps all of it.
  void end(double patience_seconds);

 private:
  ProcessGroup(pid_t guard, UniqueFd lifeline) : guard_(guard), lifeline_(std::move(lifeline)) {}

  pid_t guard_ = -1;   ///< also the group's id; as long as it is not reaped, the id is ours
  UniqueFd lifeline_;  ///< the guard's pipe: closed with this process, whatever ends it
};

/// Makes orphans below this process its children (PR_SET_CHILD_SUBREAPER), so that end_strays() finds them.
void adopt_orphans();

/// Ends and reaps all children of this process and all that they leave to it: SIGTERM, and SIGKILL two
/// seconds later. Only for the end, when none of them is wanted any more.
void end_strays();

}  // namespace whomap
