// SPDX-License-Identifier: Apache-2.0
// What was changed in a target, written down before the first byte changes, so that it can be undone by
// somebody else after a crash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/capture/code_guard.h"
#include "core/process/target.h"
#include "core/process/vma.h"
#include "core/stub/call_room.h"

namespace whomap {

/// One jump written over an instruction of the target.
struct PlacedJump {
  std::uint32_t site = 0;
  std::uint64_t address = 0;
  std::vector<std::uint8_t> original;
  std::vector<std::uint8_t> jump;
};

/// One byte in a stub that is a breakpoint (int3) while armed and does nothing (nop) else. It comes after the
/// stub's own `syscall`.
struct TrapPoint {
  std::uint64_t address = 0;
  std::uint32_t site = 0;
  std::int64_t number = 0;
};

/// What decides in the target whether a trap point is passed.
struct TrapWords {
  std::uint32_t armed = 0;    ///< 0: calls that return pass none
  std::uint32_t entered = 0;  ///< 0: calls that begin do not go there, but through the ring
};

/// Memory of ours in the target.
struct PlacedMemory {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::string kind;  ///< "code" (r-x), "data" (rw-), "ring" (shared)
};

struct StubState {
  TargetIdentity target;
  std::string nonce;  ///< 32 hex digits that lie at the start of each code area, to know our own again
  std::vector<PlacedMemory> memory;
  std::vector<PlacedJump> jumps;
  std::vector<TrapPoint> traps;
  /// Jumps that are out of the target's code but not of that of all children.
  std::vector<PlacedJump> carried;
  /// What was at the places where the debugger sets ordinary breakpoints, for sites without a stub.
  std::vector<CodeGuard::Original> breakpoints;
  std::uint64_t trap_words = 0;          ///< TrapWords in our data; 0: no traps
  std::uint64_t data = 0;                ///< the data area in use, one of `memory`
  std::uint64_t syscall_address = 0;     ///< a `syscall` instruction of the target, for calls made for us
  CallRoom padding;                      ///< room of the target's, in use until own_rooms can be
  std::uint64_t own_rooms = 0;           ///< where own_call_rooms of them lie in our code; 0: nowhere
  std::uint64_t trap_handler = 0;        ///< SIGTRAP handler that was installed; 0: none
  std::uint64_t action_address = 0;      ///< of the kernel's struct sigaction for that handler, in our data
  std::vector<std::uint8_t> old_action;  ///< the kernel's struct sigaction before, 32 bytes
};

/// The folder for state files: WHOMAP_STATE_DIR, else /run/whomap for root, else $XDG_RUNTIME_DIR/whomap,
/// else /run/user/UID/whomap. Created 0700. Error output_unwritable when it is a link, somebody else's, or
/// open to others.
Result<std::string> state_folder();

/// PID-STARTTIME.state in the folder.
Result<std::string> state_path(const TargetIdentity& target);

/// What of the target's memory is ours.
std::vector<AddressRange> own_memory(const StubState& state);
/// The same for a process of which nobody here knows whether it is or was traced: empty unless its state says
/// so and our code lies there. After an exec the state is that of the program before.
std::vector<AddressRange> own_memory(const TargetIdentity& target);

nlohmann::ordered_json to_json(const StubState& state);
/// `where` names the source in messages. Errors: input_kind, input_damaged.
Result<StubState> stub_state_from_json(const nlohmann::json& object, const std::string& where);

/// Whoever changes a process's code holds this, so that there is only one; given back when the descriptor
/// closes, also by a killed process. Error already_traced when somebody else has it.
Result<UniqueFd> lock_state(const TargetIdentity& target);

/// Written to a new file and renamed: a reader sees the old or the new one whole.
Result<void> save(const StubState& state);
/// Of one file, which must be a regular one of a state's size. Errors: input_unreadable, input_kind,
/// input_damaged.
Result<StubState> read_state(const std::string& path);
/// Nothing when there is no state file for this process. Errors: input_damaged; process_replaced when the
/// file is of another process.
Result<std::optional<StubState>> load_state(const TargetIdentity& target);
void forget_state(const TargetIdentity& target);
/// Removes the files of processes that have ended: a state outlives its trace as long as its process.
void forget_ended();

}  // namespace whomap
