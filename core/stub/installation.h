// SPDX-License-Identifier: Apache-2.0
// Stubs into a target, and out of it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/process/target.h"
#include "core/stub/engine.h"
#include "core/stub/stub_state.h"

namespace whomap {

struct SiteWithoutStub {
  std::uint32_t site = 0;
  std::string reason;
};

struct Installed {
  StubState state;
  std::vector<SiteWithoutStub> left_out;  ///< watched sites that have no stub
  std::uint64_t stopped_ns = 0;           ///< all threads stood still
};

/// Puts a stub at every watched site of the plan that has room; the target runs on before this returns. What
/// a crashed installation left is removed first, and its memory used again where the code is the same. On an
/// error the target is as it was, but for inert memory that the state file names. Errors: those of Standstill
/// and RemoteCalls; unsupported_target when system calls of the target are filtered by their address
/// (seccomp, Syscall User Dispatch), when the filter cannot be read, or when no site can have a stub;
/// output_unwritable when the state file cannot be written.
Result<Installed> install_stubs(const Target& target, const Plan& plan, StubEngine& engine);

struct Removed {
  std::size_t restored = 0;            ///< places where the original code is back
  std::vector<std::uint64_t> foreign;  ///< changed by somebody else meanwhile: left alone
  std::vector<std::uint64_t> failed;   ///< could not be written
  std::uint64_t inert_bytes = 0;  ///< code and data that stay mapped: a saved program counter may lie there
  std::uint64_t stopped_ns = 0;
  bool handler_kept = false;  ///< the target has set another SIGTRAP handler meanwhile: left alone
};

/// Puts the original code back with all threads stopped; threads inside a stub finish there. Works from the
/// state file alone, any number of times. `target` may also be a forked child of the process that the state
/// is of. Errors: those of Standstill.
Result<Removed> remove_stubs(const Target& target, StubState state);

/// Writes int3 (armed) or nop at the trap points that hold the other of the two. Needs no stop: one byte
/// each. Returns how many could not be written.
std::size_t set_traps(pid_t pid, const StubState& state, bool armed);

/// Processes other than the target that carry its stubs: children forked while they were in.
std::vector<pid_t> find_carriers(const StubState& state);

}  // namespace whomap
