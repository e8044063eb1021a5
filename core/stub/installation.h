// SPDX-License-Identifier: Apache-2.0
// Stubs into a target, and out of it again.
#pragma once

#include <cstdint>
#include <optional>
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
Result<Installed> install_stubs(const Target& target, const Plan& plan, StubEngine& engine,
                                StopBy whom = StopBy::seizing);

/// What a crashed trace has left is taken out; returns the state of the memory that stays and can be used
/// again, if there is any. Errors: those of find_foreign_stubs, load_state and remove_stubs.
Result<std::optional<StubState>> clear_old_stubs(const Target& target, StopBy whom = StopBy::seizing);

/// The plan with only those sites watched that have no stub: for ordinary breakpoints.
Plan without_stubs(const Plan& plan, const StubState& state);

}  // namespace whomap
