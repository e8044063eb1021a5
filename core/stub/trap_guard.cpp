// SPDX-License-Identifier: Apache-2.0
#include "core/stub/trap_guard.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/process/status.h"
#include "core/stub/remote_call.h"

namespace whomap {
namespace {

constexpr std::uint64_t bit(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

/// What the kernel leaves of "all signals": SIGKILL and SIGSTOP cannot be blocked, SIGTRAP was just let
/// through.
constexpr std::uint64_t everything = ~(bit(SIGKILL) | bit(SIGSTOP) | bit(SIGTRAP));
/// The two signals of the C library that sigfillset leaves out (glibc, nptl: SIGCANCEL 32 and SIGSETXID 33).
constexpr std::uint64_t library_signals = bit(32) | bit(33);

}  // namespace

bool TrapGuard::handler_is_in() const {
  const auto status = read_status(pid_);
  if (!status) return true;
  const auto caught = status->fields.find("SigCgt");
  if (caught == status->fields.end()) return true;
  return (std::strtoull(caught->second.c_str(), nullptr, 16) & bit(SIGTRAP)) != 0;
}

void TrapGuard::install_handler(pid_t tid) {
  constexpr std::uint64_t mask_size = 8;
  std::vector<HeldSignal> late;
  {
    auto calls = RemoteCalls::in_stop(tid, syscall_address_, late);
    if (calls && calls->call(SYS_rt_sigaction, {SIGTRAP, action_, 0, mask_size, 0, 0})) ++handlers_;
  }
  for (const HeldSignal& each : late) ::syscall(SYS_tgkill, pid_, each.tid, each.signal);
}

bool blocks_sigtrap(pid_t tid) {
  std::uint64_t mask = 0;
  return ::ptrace(PTRACE_GETSIGMASK, tid, reinterpret_cast<void*>(sizeof mask), &mask) == 0 &&
         (mask & bit(SIGTRAP)) != 0;
}

bool TrapGuard::look_after(pid_t tid) {
  constexpr std::uint64_t look_every_ns = 50'000'000;
  std::uint64_t mask = 0;
  const auto size = reinterpret_cast<void*>(sizeof mask);
  if (::ptrace(PTRACE_GETSIGMASK, tid, size, &mask) != 0) return false;
  // The library's own "all" has also the signals that sigfillset leaves out; a program's has not, and might
  // mean what it shows, unless the handler is gone as well.
  const bool all_of_library = mask == everything;
  const bool all_of_program = mask == (everything & ~library_signals);
  const std::uint64_t now = monotonic_ns();
  if (!all_of_library && !all_of_program && now < next_look_ns_) return false;
  next_look_ns_ = now + look_every_ns;
  const bool handler_lost = !handler_is_in();
  if (handler_lost) install_handler(tid);
  if (all_of_library || (all_of_program && handler_lost)) {
    mask |= bit(SIGTRAP);
    if (::ptrace(PTRACE_SETSIGMASK, tid, size, &mask) == 0) ++masks_;
    return true;
  }
  return handler_lost;
}

}  // namespace whomap
