// SPDX-License-Identifier: Apache-2.0
// Stubs out of a target again, from what the state file says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/process/memory.h"
#include "core/process/target.h"
#include "core/stub/standstill.h"
#include "core/stub/stub_state.h"

namespace whomap {

/// Are code areas of `state` in this process? After an exec the addresses belong to others.
bool is_ours(pid_t pid, const StubState& state);
/// The same of memory that is then written through the same file: no exec can come in between.
bool is_ours(const MemoryFile& memory, const StubState& state);

struct Removed {
  std::size_t restored = 0;            ///< places where the original code is back
  std::vector<std::uint64_t> foreign;  ///< changed by somebody else meanwhile: left alone
  std::vector<std::uint64_t> failed;   ///< could not be written
  std::uint64_t inert_bytes = 0;  ///< code and data that stay mapped: a saved program counter may lie there
  std::uint64_t stopped_ns = 0;
  bool handler_kept = false;  ///< the target has set another SIGTRAP handler meanwhile: left alone
  std::vector<pid_t> carriers_left;  ///< children that still have stubs in their code
};

/// Puts the original code back with all threads stopped; threads inside a stub finish there. Works from the
/// state file alone, any number of times. `target` may also be a forked child of the process that the state
/// is of. Errors: those of Standstill.
Result<Removed> remove_stubs(const Target& target, StubState state, StopBy whom = StopBy::seizing);

enum class Traps {
  off,      ///< nop at the trap points, and no way there
  armed,    ///< int3: calls are handed over to a debugger
  leaving,  ///< int3 for the calls under way; those that begin go through the ring
};

/// Writes int3 or nop at the trap points that hold the other of the two, and the words that let threads pass
/// them. Needs no stop. Returns how many could not be written.
std::size_t set_traps(pid_t pid, const StubState& state, Traps traps);

}  // namespace whomap
