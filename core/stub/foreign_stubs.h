// SPDX-License-Identifier: Apache-2.0
// Stubs in a process that the state files at hand say nothing of.
#pragma once

#include <optional>

#include "core/base/error.h"
#include "core/process/target.h"

namespace whomap {

/// Does code of the process jump into stubs that no state of this state folder knows? They are of a whomap
/// with another WHOMAP_STATE_DIR, at work or killed, or a forked child has taken them along. Inert memory of
/// an earlier trace, into which nothing jumps any more, does not count. Reads code pages that were written
/// since they were mapped, and only where there is code of ours at all. The error is already_traced and says
/// what to do; nothing when there are none or it cannot be told.
std::optional<Error> find_foreign_stubs(const Target& target);

}  // namespace whomap
