// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a vfork child.
#pragma once

#include <sys/types.h>

#include "core/process/target.h"

namespace whomap {

/// The letter after the name in /proc/PID/task/TID/stat (man 5 proc_pid_stat, field 3); X when it cannot be
/// read, ? when it makes no sense.
char task_state(pid_t pid, pid_t tid);

/// The parent of a vfork child, which ptrace cannot stop before that child is done; 0 when there is none.
/// Others in uninterruptible sleep, most of all those that wait for the lock of the address space, soon wake
/// up.
pid_t find_vfork_parent(const Target& target);

}  // namespace whomap
