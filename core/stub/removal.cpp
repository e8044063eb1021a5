// SPDX-License-Identifier: Apache-2.0
#include "core/stub/removal.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "core/capture/code_guard.h"
#include "core/capture/ring.h"
#include "core/process/memory.h"
#include "core/process/own_memory.h"
#include "core/stub/remote_call.h"
#include "core/stub/standstill.h"

namespace whomap {
namespace {

/// What lies there may be the target's by now.
bool is_ring(pid_t pid, const PlacedMemory& memory) {
  const auto maps = read_maps(pid);
  if (!maps) return false;
  const Vma* const vma = find_vma(maps->vmas, memory.address);
  return vma != nullptr && vma->name == ring_mapping_name && vma->start == memory.address &&
         vma->size() == memory.size;
}

bool makes_calls_at(pid_t pid, std::uint64_t address) {
  return read_bytes(pid, address, 2) == std::vector<std::uint8_t>{0x0F, 0x05};
}

/// Takes the SIGTRAP handler out again, when it is still ours.
Result<void> restore_handler(RemoteCalls& calls, Standstill& stillness, pid_t pid, StubState& state,
                             Removed& removed) {
  if (state.trap_handler == 0) return {};
  constexpr std::uint64_t mask_size = 8;
  const std::uint64_t scratch = state.action_address;
  const auto asked = calls.call(SYS_rt_sigaction, {SIGTRAP, 0, scratch, mask_size, 0, 0});
  if (!asked) return tl::make_unexpected(asked.error());
  const auto now = read_bytes(pid, scratch, state.old_action.size());
  std::uint64_t handler = 0;
  if (now.size() >= sizeof handler) std::memcpy(&handler, now.data(), sizeof handler);
  if (handler != state.trap_handler) {
    removed.handler_kept = handler > 1;  // 0 and 1 are SIG_DFL and SIG_IGN
    return {};
  }
  stillness.write(scratch, state.old_action);
  const auto set = calls.call(SYS_rt_sigaction, {SIGTRAP, scratch, 0, mask_size, 0, 0});
  if (!set) return tl::make_unexpected(set.error());
  return {};
}

}  // namespace

/// The areas of `state` that are in this process: after an exec the addresses belong to others.
bool is_ours(const MemoryFile& memory, const StubState& state) {
  return std::any_of(state.memory.begin(), state.memory.end(), [&](const PlacedMemory& each) {
    std::array<std::uint8_t, own_header_size> header{};
    const std::size_t got = each.kind == "code" ? memory.read(each.address, header) : 0;
    return !state.nonce.empty() && nonce_of_header(std::span(header).first(got)) == state.nonce;
  });
}

bool is_ours(pid_t pid, const StubState& state) {
  return is_ours(MemoryFile(pid), state);
}

namespace {

/// Disarms the stubs that record. True when nobody is in the ring any more, waited for `patience_ms` at most.
bool leave_ring(pid_t pid, const StubState& state, int patience_ms) {
  const std::uint64_t control = state.data;
  if (std::none_of(state.memory.begin(), state.memory.end(),
                   [](const PlacedMemory& each) { return each.kind == "ring"; }))
    return true;
  const MemoryFile memory(pid);
  if (!is_ours(memory, state)) return false;
  const std::array<std::uint8_t, sizeof(std::uint32_t)> off{};
  if (!memory.write(control + WHOMAP_CONTROL_ARMED, off)) return false;
  for (int waited = 0; waited <= patience_ms; ++waited) {
    std::array<std::uint8_t, sizeof(std::uint64_t)> inside{};
    if (memory.read(control + WHOMAP_CONTROL_INSIDE, inside) != inside.size()) return false;
    if (inside == std::array<std::uint8_t, sizeof(std::uint64_t)>{}) return true;
    ::poll(nullptr, 0, 1);
  }
  return false;
}

/// A tracer that died while it used the target's padding left it so. A signal handler that interrupted the
/// way back there has to end first, which is waited for for a while. Removed::failed has what could not be
/// cleared.
Result<void> clear_padding(const Target& target, StubState& state, Removed& removed, StopBy whom) {
  constexpr int most_tries = 10;
  constexpr int pause_ms = 20;
  for (int tries = 0; state.padding.address != 0; ++tries) {
    auto stillness = Standstill::by(whom, target);
    if (!stillness) return tl::make_unexpected(stillness.error());
    const bool cleared = clear_room(target, *stillness, state.padding, state.nonce);
    stillness->end();
    removed.stopped_ns += stillness->nanoseconds();
    if (cleared) {
      state.padding = {};
    } else if (tries == most_tries) {
      removed.failed.push_back(state.padding.address);
      return {};
    } else {
      ::poll(nullptr, 0, pause_ms);
    }
  }
  return {};
}

}  // namespace

Result<Removed> remove_stubs(const Target& target, StubState state, StopBy whom) {
  Removed removed;
  const bool own_state = target.identity().pid == state.target.pid;
  if (own_state)
    if (auto cleared = clear_padding(target, state, removed, whom); !cleared)
      return tl::make_unexpected(cleared.error());
  // Without stubs there are only breakpoints: each knows by itself whether its place is still the same.
  const bool without_stubs = state.memory.empty() && !state.breakpoints.empty();
  if (!without_stubs && !is_ours(target.pid(), state)) {
    if (!own_state) return removed;
    if (state.padding.address == 0) {
      forget_state(target.identity());
      return removed;
    }
    StubState rest;
    rest.target = state.target;
    rest.nonce = state.nonce;
    rest.padding = state.padding;
    if (auto saved = save(rest); !saved) return tl::make_unexpected(saved.error());
    return removed;
  }
  set_traps(target.pid(), state, Traps::off);
  constexpr int patience_ms = 200;
  const bool ring_is_left = leave_ring(target.pid(), state, patience_ms);
  auto stillness = Standstill::by(whom, target);
  if (!stillness) return tl::make_unexpected(stillness.error());
  if (!own_state) state.jumps.insert(state.jumps.end(), state.carried.begin(), state.carried.end());
  for (const PlacedJump& jump : state.jumps) {
    const auto now = read_bytes(target.pid(), jump.address, jump.jump.size());
    if (now == jump.original || now.empty()) continue;
    if (now != jump.jump)
      removed.foreign.push_back(jump.address);
    else if (stillness->write(jump.address, jump.original))
      ++removed.restored;
    else
      removed.failed.push_back(jump.address);
  }
  const auto ring = std::find_if(state.memory.begin(), state.memory.end(),
                                 [](const PlacedMemory& each) { return each.kind == "ring"; });
  const bool unmap_ring =
      own_state && ring != state.memory.end() && ring_is_left && is_ring(target.pid(), *ring);
  CallPlace place{own_room(target.pid(), state.own_rooms), state.nonce, state.syscall_address};
  if ((state.trap_handler != 0 || unmap_ring) &&
      (place.room || makes_calls_at(target.pid(), state.syscall_address))) {
    auto calls = RemoteCalls::borrow(target, *stillness, std::move(place));
    if (calls) {
      if (auto restored = restore_handler(*calls, *stillness, target.pid(), state, removed); !restored)
        return tl::make_unexpected(restored.error());
      state.trap_handler = 0;
      if (unmap_ring && calls->call(SYS_munmap, {ring->address, ring->size, 0, 0, 0, 0}) == std::uint64_t{0})
        state.memory.erase(ring);
    }
  }
  const CodeGuard::Outcome outcome = CodeGuard(state.breakpoints).take_out(target);
  removed.restored += outcome.restored.size();
  removed.failed.insert(removed.failed.end(), outcome.failed.begin(), outcome.failed.end());
  stillness->end();
  removed.stopped_ns += stillness->nanoseconds();
  for (const PlacedMemory& each : state.memory) removed.inert_bytes += each.size;
  if (removed.failed.empty() && own_state) {
    state.jumps.clear();
    state.traps.clear();
    state.breakpoints.clear();
    if (without_stubs)
      forget_state(target.identity());
    else if (auto saved = save(state); !saved)
      return tl::make_unexpected(saved.error());
  }
  return removed;
}

std::size_t set_traps(pid_t pid, const StubState& state, Traps traps) {
  constexpr std::uint8_t int3 = 0xCC;
  constexpr std::uint8_t nop = 0x90;
  const MemoryFile memory(pid);
  if (!is_ours(memory, state)) return 0;  // it has exec'd or ended
  std::size_t failed = 0;
  const bool armed = traps != Traps::off;
  const TrapWords words{armed ? 1U : 0U, traps == Traps::armed ? 1U : 0U};
  const auto set_words = [&] {
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(&words), sizeof words);
    if (state.trap_words != 0 && !memory.write(state.trap_words, bytes)) ++failed;
  };
  if (traps != Traps::armed) set_words();  // one write keeps them all away
  for (const TrapPoint& trap : state.traps) {
    // What TrapEngine::emit writes: jecxz behind the byte, and the byte. Nothing else is ever written over.
    std::array<std::uint8_t, 4> found{};
    const std::uint8_t wanted = armed ? int3 : nop;
    if (memory.read(trap.address - 3, found) != found.size()) continue;
    const std::uint8_t now = found[3];
    if (found[0] != 0x67 || found[1] != 0xE3 || found[2] != 0x01 || (now != int3 && now != nop)) {
      ++failed;
      continue;
    }
    if (now != wanted && !memory.write(trap.address, std::span(&wanted, 1))) ++failed;
  }
  if (traps == Traps::armed) set_words();
  return failed;
}

}  // namespace whomap
