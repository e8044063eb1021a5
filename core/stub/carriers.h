// SPDX-License-Identifier: Apache-2.0
// Children that were forked while stubs were in carry them: in their code too they are taken out.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/stub/removal.h"
#include "core/stub/stub_state.h"

namespace whomap {

/// Processes other than the target that have memory of `state`.
std::vector<pid_t> find_carriers(const StubState& state);

struct RemovedFromCarrier {
  pid_t pid = 0;
  Result<Removed> removed;
};

/// Out of the target and of all that carry them, until no process is found that does; Removed::carriers_left
/// has those that cannot be changed now, because somebody else traces them, and the state file then keeps
/// what is needed to do it later. The answer is the target's; `children`, if not null, gets the others'.
Result<Removed> remove_everywhere(const Target& target, const StubState& state,
                                  std::vector<RemovedFromCarrier>* children = nullptr);

/// The state of the process that `pid` was forked from with stubs in its code, from the state folder.
std::optional<StubState> state_of_carrier(pid_t pid);

}  // namespace whomap
