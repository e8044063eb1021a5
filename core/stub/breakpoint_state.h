// SPDX-License-Identifier: Apache-2.0
// A trace without stubs: what lies where a debugger will set ordinary breakpoints is written down first, so
// that `whomap repair` can put it back when everybody who knew has died.
#pragma once

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/plan/plan.h"
#include "core/process/target.h"
#include "core/stub/stub_state.h"

namespace whomap {

class BreakpointState {
 public:
  /// Holds the lock on changing the process's code from now on. Errors: those of lock_state, load_state, save
  /// and CodeGuard::record.
  static Result<BreakpointState> write(const Target& target, const Plan& plan);

  /// The breakpoints are out of the code again.
  void forget();

 private:
  BreakpointState(UniqueFd lock, StubState state) : lock_(std::move(lock)), state_(std::move(state)) {}
  UniqueFd lock_;
  StubState state_;
};

}  // namespace whomap
