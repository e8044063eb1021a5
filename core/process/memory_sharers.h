// SPDX-License-Identifier: Apache-2.0
// Other processes that live in the same memory.
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/process/target.h"

namespace whomap {

/// Processes that share the target's address space without being threads of it (clone with CLONE_VM and
/// without CLONE_THREAD): what is written into its code they execute too, and no tracer of the target's
/// threads stops them. Children of a vfork, which last until they exec or end, are not among them. What
/// cannot be compared (kcmp(2), which needs the right to trace both) is left out.
std::vector<pid_t> memory_sharers(const Target& target);

}  // namespace whomap
