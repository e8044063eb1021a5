// SPDX-License-Identifier: Apache-2.0
// Room in the target for a little code that makes a system call for us and then, by itself, leads the thread
// that was lent for it back to where it was. Whoever lent the thread can die at any moment: the thread gets
// home.
#pragma once

#include <sys/user.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/process/target.h"
#include "core/process/vma.h"
#include "core/stub/standstill.h"

namespace whomap {

constexpr std::size_t call_room_size = 256;
/// How many lie at the end of a code area of ours. One is left as it is when a tracer dies, since a signal
/// handler may return into it; the next tracer takes the next.
constexpr std::size_t own_call_rooms = 4;

struct CallRoom {
  std::uint64_t address = 0;           ///< 0: none
  std::vector<std::uint8_t> original;  ///< what lies there while it is not in use, call_room_size bytes
};

/// What a thread executes in the room at `address`: from call_entry() on a `syscall` instruction, then, from
/// way_back() on, rt_sigprocmask with `signal_mask`, the registers as in `registers`, and a jump to their
/// rip. It needs no stack and changes no flags; `syscall` keeps the extended registers. No return, so shadow
/// stacks (SHSTK) are not touched. rt_sigreturn, which would do all at once, ends the kernel's note of an
/// interrupted sleep (restart_block); this does not.
std::vector<std::uint8_t> call_room_code(std::uint64_t address, const std::string& nonce,
                                         const user_regs_struct& registers, std::uint64_t signal_mask);
std::uint64_t call_entry(const CallRoom& room);
std::uint64_t way_back(const CallRoom& room);

/// Room behind the end of a segment of code, up to the end of its page: no instruction of the target lies
/// there, and nothing has to be mapped for it. The first module that has it, the kernel's vdso last. Nothing
/// when none has.
std::optional<CallRoom> find_padding(pid_t pid, const std::vector<Vma>& vmas);

/// The first unused one of the rooms that lie at `own_rooms` in our code area; nothing when `own_rooms` is 0
/// or none is left.
std::optional<CallRoom> own_room(pid_t pid, std::uint64_t own_rooms);

/// Puts the original bytes into a room that a tracer left in use when it died. False while a thread may come
/// back to it: one is in it, or a word on a thread's stack points into it, as in the frame of a signal that
/// interrupted the way back. True when it is as found, also when the memory is not ours any more.
bool clear_room(const Target& target, Standstill& stillness, const CallRoom& room, const std::string& nonce);

}  // namespace whomap
