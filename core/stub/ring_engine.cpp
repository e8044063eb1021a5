// SPDX-License-Identifier: Apache-2.0
#include "core/stub/ring_engine.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "core/capture/ring.h"
#include "core/process/memory.h"
#include "core/process/own_memory.h"

namespace whomap {
namespace {

std::optional<std::uint64_t> read_word(pid_t pid, std::uint64_t address) {
  std::uint64_t word = 0;
  if (read_memory(pid, address, std::as_writable_bytes(std::span(&word, 1))) != sizeof word)
    return std::nullopt;
  return word;
}

}  // namespace

std::uint64_t RingEngine::data_size() const {
  return (control_area_bytes + page_size_ - 1) / page_size_ * page_size_;
}

bool RingEngine::can_use_again(pid_t pid, std::uint64_t data) const {
  return read_word(pid, data + WHOMAP_CONTROL_INSIDE) == 0;
}

Result<void> RingEngine::begin(CodeBuffer& /*code*/, std::uint64_t data) {
  hand_over_ = RingHandOver(data);
  return {};
}

Result<void> RingEngine::emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) {
  return hand_over_.emit(code, site, number);
}

Result<void> RingEngine::connect(RemoteCalls& calls, Standstill& stillness, StubState& state,
                                 const std::vector<std::uint64_t>& /*areas*/) {
  const std::uint64_t control = state.data;
  const std::array<std::uint8_t, WHOMAP_CONTROL_BYTES> empty{};
  if (!stillness.write(control, empty))
    return fail(ErrorCode::not_permitted, "the target's memory cannot be written", {}, errno);
  if (auto wiped = calls.call_or_fail("madvise", SYS_madvise,
                                      {control, WHOMAP_CONTROL_BYTES, MADV_WIPEONFORK, 0, 0, 0});
      !wiped)
    return tl::make_unexpected(wiped.error());

  // What lies behind is kept: a child that was forked inside a record needs it. Another engine may have said
  // otherwise.
  if (auto kept = calls.call_or_fail(
          "madvise", SYS_madvise,
          {control + WHOMAP_SETTINGS, data_size() - WHOMAP_SETTINGS, MADV_KEEPONFORK, 0, 0, 0});
      !kept)
    return tl::make_unexpected(kept.error());

  // rdtsc is fatal after prctl(PR_SET_TSC, PR_TSC_SIGSEGV) (man 2 PR_SET_TSC).
  const std::uint64_t answer = control + WHOMAP_SETTINGS;
  const auto asked = calls.call(SYS_prctl, {PR_GET_TSC, answer, 0, 0, 0, 0});
  if (!asked) return tl::make_unexpected(asked.error());
  const auto tsc_mode = read_word(state.target.pid, answer);
  tsc_forbidden_ = *asked == 0 && tsc_mode && static_cast<std::uint32_t>(*tsc_mode) == PR_TSC_SIGSEGV;

  // The settings' page is free until the engine is armed: the name of the file lies there.
  std::array<std::uint8_t, ring_file_name.size() + 1> name{};
  std::copy(ring_file_name.begin(), ring_file_name.end(), name.begin());
  const std::uint64_t name_address = control + WHOMAP_SETTINGS;
  if (!stillness.write(name_address, name))
    return fail(ErrorCode::not_permitted, "the target's memory cannot be written", {}, errno);
  const auto made =
      calls.call_or_fail("memfd_create", SYS_memfd_create, {name_address, MFD_CLOEXEC, 0, 0, 0, 0});
  if (!made) return tl::make_unexpected(made.error());
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, state.target.pid, 0)));
  ring_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), static_cast<int>(*made), 0)));
  const int why = errno;
  Result<std::uint64_t> mapped =
      fail(ErrorCode::kernel_feature, "pidfd_getfd failed", "Linux 5.6 or later is needed", why);
  if (ring_.valid() && ::ftruncate(ring_.get(), static_cast<off_t>(ring_bytes_)) == 0) {
    // Where the kernel would put it, it would lie between what the target has mapped and what it maps next.
    const std::uint64_t flags =
        MAP_SHARED | MAP_NORESERVE | (place_ == 0 ? 0U : unsigned{MAP_FIXED_NOREPLACE});
    mapped =
        calls.call_or_fail("mmap", SYS_mmap, {place_, ring_bytes_, PROT_READ | PROT_WRITE, flags, *made, 0});
  }
  if (auto closed = calls.call_or_fail("close", SYS_close, {*made, 0, 0, 0, 0, 0}); !closed)
    return tl::make_unexpected(closed.error());
  if (!mapped) return tl::make_unexpected(mapped.error());
  state.memory.push_back({*mapped, ring_bytes_, "ring"});
  if (auto saved = save(state); !saved) return saved;
  if (auto alone = calls.call_or_fail("madvise", SYS_madvise, {*mapped, ring_bytes_, MADV_DONTFORK, 0, 0, 0});
      !alone)
    return tl::make_unexpected(alone.error());

  for (const pid_t tid : stillness.threads()) {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) == 0 && registers.fs_base != 0)
      threads_.push_back({tid, registers.fs_base});
  }
  return {};
}

}  // namespace whomap
