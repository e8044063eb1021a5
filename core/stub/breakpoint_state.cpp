// SPDX-License-Identifier: Apache-2.0
#include "core/stub/breakpoint_state.h"

#include <utility>

#include "core/stub/installation.h"

namespace whomap {

Result<BreakpointState> BreakpointState::write(const Target& target, const Plan& plan) {
  auto lock = lock_state(target.identity());
  if (!lock) return tl::make_unexpected(lock.error());
  auto old = clear_old_stubs(target);
  if (!old) return tl::make_unexpected(old.error());
  // What an earlier trace with stubs has left mapped can still be used by the next.
  StubState state = old->value_or(StubState{});
  state.target = target.identity();
  const auto guard = CodeGuard::record(target, plan);
  if (!guard) return tl::make_unexpected(guard.error());
  state.breakpoints = guard->originals();
  if (auto saved = save(state); !saved) return tl::make_unexpected(saved.error());
  return BreakpointState(std::move(*lock), std::move(state));
}

void BreakpointState::forget() {
  state_.breakpoints.clear();
  if (state_.memory.empty())
    forget_state(state_.target);
  else
    (void)save(state_);
}

}  // namespace whomap
