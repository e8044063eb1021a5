// SPDX-License-Identifier: Apache-2.0
// Does something in the target decide about a system call by the address it comes from? A stub makes the call
// from another address than the program.
#pragma once

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/stub/standstill.h"

namespace whomap {

/// Threads with a seccomp filter, by /proc; to be asked before the threads are stopped.
std::vector<pid_t> filtered_threads(const Target& target);

/// Looks at Syscall User Dispatch (PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, Linux 6.4) of all threads and at
/// the seccomp filters (PTRACE_SECCOMP_GET_FILTER) of `filtered`. Error unsupported_target when one of them
/// looks at the instruction pointer, or cannot be read.
Result<void> check_call_filters(const Standstill& stillness, const std::vector<pid_t>& filtered);

}  // namespace whomap
