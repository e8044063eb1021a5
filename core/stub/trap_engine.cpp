// SPDX-License-Identifier: Apache-2.0
#include "core/stub/trap_engine.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "core/capture/ring_offsets.h"
#include "core/process/memory.h"
#include "core/process/own_memory.h"
#include "core/stub/stub_code.h"

extern "C" {
extern const std::uint8_t whomap_trap_template[], whomap_trap_template_end[];
extern const std::uint8_t whomap_trap_handler[], whomap_trap_restorer[], whomap_trap_data[];
}

namespace whomap {
namespace {

/// The kernel's struct sigaction on x86-64 (arch/x86/include/uapi/asm/signal.h), not glibc's.
struct KernelAction {
  std::uint64_t handler, flags, restorer, mask;
};
constexpr std::uint64_t sa_restorer = 0x04000000;
constexpr std::uint64_t mask_size = 8;
constexpr std::size_t most_areas = 64;
constexpr std::array<std::uint8_t, 2> system_call{0x0F, 0x05};

/// Calls that libraries make with all signals blocked: glibc unmaps the stack of a posix_spawn child and of
/// an ended thread, and gives back the pages of a cached one.
bool made_with_signals_blocked(std::int64_t number) {
  return number == SYS_munmap || number == SYS_madvise;
}

/// mov of the word at `address` to ecx, and a jump over `bytes` of code when it is 0; no flag changes.
void append_skip_unless(CodeBuffer& code, std::uint64_t address, std::uint8_t bytes) {
  constexpr std::array<std::uint8_t, 10> load_address{0x48, 0xB9};  // movabs $address,%rcx
  code.append(load_address);
  code.write64(code.bytes().size() - sizeof address, address);
  code.append(std::array<std::uint8_t, 5>{0x8B, 0x09,           // mov (%rcx),%ecx
                                          0x67, 0xE3, bytes});  // jecxz
}

/// jmp rel32 to a place that aim_here() tells later. Returns where it is.
std::size_t append_jump(CodeBuffer& code) {
  const std::size_t at = code.bytes().size();
  (void)code.jump_to(code.here());
  return at;
}

void aim_here(CodeBuffer& code, std::size_t jump) {
  constexpr std::size_t jump_size = 5;
  code.write32(jump + 1, static_cast<std::uint32_t>(code.bytes().size() - jump - jump_size));
}

/// For mmap: a jump to `elsewhere` when it is shorter than the 64 bits at `minimum` and does not replace
/// other memory (MAP_FIXED). Only rcx and r11 are free; the flags are kept in ax meanwhile.
bool append_jump_if_short(CodeBuffer& code, std::uint64_t minimum, std::uint64_t elsewhere) {
  constexpr std::array<std::uint8_t, 8> as_before{0x04, 0x7F,       // add $0x7f,%al: OF as it was
                                                  0x9E,             // sahf
                                                  0xB8, SYS_mmap};  // mov $SYS_mmap,%eax
  constexpr std::uint8_t jump_size = 5;
  code.append(std::array<std::uint8_t, 10>{0x9F, 0x0F, 0x90, 0xC0,       // lahf, seto %al
                                           0x41, 0xF6, 0xC2, MAP_FIXED,  // test $MAP_FIXED,%r10b
                                           0x75, 15 + as_before.size() + jump_size});  // jnz to the end
  code.append(std::array<std::uint8_t, 10>{0x49, 0xBB});                               // movabs $minimum,%r11
  code.write64(code.bytes().size() - sizeof minimum, minimum);
  code.append(std::array<std::uint8_t, 5>{0x49, 0x3B, 0x33,                      // cmp (%r11),%rsi
                                          0x73, as_before.size() + jump_size});  // jae to the end
  code.append(as_before);
  if (!code.jump_to(elsewhere)) return false;
  code.append(as_before);
  return true;
}

template <class T>
std::span<const std::uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

}  // namespace

Result<void> TrapEngine::begin(CodeBuffer& code, std::uint64_t data) {
  if (auto begun = ring_.begin(code, data); !begun) return begun;
  const std::uint64_t own = data + ring_.data_size();
  const std::size_t start = code.bytes().size();
  code.append({whomap_trap_template, whomap_trap_template_end});
  code.write64(start + static_cast<std::size_t>(whomap_trap_data - whomap_trap_template), own);
  words_ = own + page_size_;
  minimum_length_ = data + WHOMAP_SETTINGS_MINIMUM_LENGTH;
  return {};
}

Result<void> TrapEngine::emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) {
  if (made_with_signals_blocked(number)) return ring_.emit(code, site, number);
  constexpr std::uint8_t jump_size = 5;
  append_skip_unless(code, words_ + offsetof(TrapWords, entered), jump_size);
  const std::size_t to_trap = append_jump(code);
  const std::uint64_t to_ring = code.here();
  if (auto recorded = ring_.emit(code, site, number); !recorded) return recorded;
  const std::size_t over_trap = append_jump(code);
  aim_here(code, to_trap);
  // The ring's stub counts what is too short to be recorded.
  if (number == SYS_mmap && !append_jump_if_short(code, minimum_length_, to_ring))
    return fail(ErrorCode::unsupported_target, "the stub is too long for a jump");
  code.append(system_call);
  append_skip_unless(code, words_ + offsetof(TrapWords, armed), 1);
  traps_.push_back({code.here(), site, number});
  code.append(std::array<std::uint8_t, 1>{0x90});  // nop
  aim_here(code, over_trap);
  return {};
}

Result<void> TrapEngine::connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                                 const std::vector<std::uint64_t>& areas) {
  if (areas.size() > most_areas) return fail(ErrorCode::unsupported_target, "too many code areas");
  if (auto connected = ring_.connect(calls, stillness, state, areas); !connected) return connected;
  const std::uint64_t data = state.data + ring_.data_size();
  // Children that are forked need the handler's data as well.
  const auto kept = calls.call(SYS_madvise, {data, page_size_, MADV_KEEPONFORK, 0, 0, 0});
  if (!kept) return tl::make_unexpected(kept.error());
  const auto wiped = calls.call_or_fail("madvise(MADV_WIPEONFORK)", SYS_madvise,
                                        {data + page_size_, page_size_, MADV_WIPEONFORK, 0, 0, 0});
  if (!wiped) return tl::make_unexpected(wiped.error());
  state.trap_words = data + page_size_;

  const std::uint64_t scratch = data + page_size_ / 2;
  const auto asked =
      calls.call_or_fail("rt_sigaction", SYS_rt_sigaction, {SIGTRAP, 0, scratch, mask_size, 0, 0});
  if (!asked) return tl::make_unexpected(asked.error());
  state.old_action.resize(sizeof(KernelAction));
  if (read_memory(calls.tid(), scratch, std::as_writable_bytes(std::span(state.old_action))) !=
      sizeof(KernelAction))
    return fail(ErrorCode::not_permitted, "the target's memory cannot be read", {}, errno);

  std::array<std::uint64_t, most_areas + 2> handler_data{};
  std::memcpy(handler_data.data(), state.old_action.data(), sizeof(std::uint64_t));
  handler_data[1] = areas.size();
  std::copy(areas.begin(), areas.end(), handler_data.begin() + 2);
  const std::uint64_t base = areas.front() + own_header_size;
  const KernelAction action{base + static_cast<std::uint64_t>(whomap_trap_handler - whomap_trap_template),
                            SA_SIGINFO | SA_NODEFER | SA_RESTART | SA_ONSTACK | sa_restorer,
                            base + static_cast<std::uint64_t>(whomap_trap_restorer - whomap_trap_template),
                            0};
  state.trap_handler = action.handler;
  state.action_address = scratch;
  if (auto saved = save(state); !saved) return saved;
  if (!stillness.write(data, bytes_of(handler_data)) || !stillness.write(scratch, bytes_of(action)))
    return fail(ErrorCode::not_permitted, "the target's memory cannot be written", {}, errno);
  const auto set =
      calls.call_or_fail("rt_sigaction", SYS_rt_sigaction, {SIGTRAP, scratch, 0, mask_size, 0, 0});
  if (!set) return tl::make_unexpected(set.error());
  return {};
}

}  // namespace whomap
