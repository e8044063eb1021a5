// SPDX-License-Identifier: Apache-2.0
// What a supervisor does while a debugger is attached to a target with stubs.
#pragma once

#include <functional>

#include "core/base/unique_fd.h"
#include "core/process/target.h"
#include "core/stub/stub_state.h"

namespace whomap {

/// What is in the target by now.
using CurrentStubs = std::function<StubState()>;

/// Until an order comes on `channel`, its other side is gone, or the target has ended. A debugger that dies
/// leaves armed stubs behind, and stopped threads: the stubs are disarmed at once, the threads continued.
/// With `ends_debugger` it ends one that an exec waits for in vain; not one that a user sits at.
void wait_for_end(const Target& target, const CurrentStubs& stubs, const UniqueFd& channel,
                  bool ends_debugger);

/// A debugger lets go in its own time; without that nobody else can stop the threads. Returns when it has,
/// when the target has ended, or when `enough` says so.
void wait_for_debugger(const Target& target, const std::function<bool()>& enough);

}  // namespace whomap
