// SPDX-License-Identifier: Apache-2.0
#include "core/stub/remote_call.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

constexpr std::uint64_t all_signals = ~std::uint64_t{0};
constexpr std::uint64_t syscall_length = 2;
/// Results by which the kernel marks an interrupted call, never seen by programs (linux/errno.h).
constexpr std::int64_t restart_first = -514;  // ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS
constexpr std::int64_t restart_last = -512;
constexpr std::int64_t restart_by_block = -516;  // ERESTART_RESTARTBLOCK

bool is_event_stop(int status) {
  return status >> 16 == PTRACE_EVENT_STOP;
}

/// A stop for job control looks alike, with the stopping signal in place of SIGTRAP.
bool is_syscall_stop(int status) {
  return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

int seccomp_mode(pid_t pid, pid_t tid) {
  const auto text = read_file(fmt::format("/proc/{}/task/{}/status", pid, tid));
  return text ? parse_status(*text).seccomp.value_or(0) : 0;
}

/// Is the thread in the stop that PTRACE_INTERRUPT asked for, not about to get a signal?
bool is_in_interrupt_stop(pid_t tid) {
  siginfo_t info{};
  if (::ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return false;
  return info.si_code >> 8 == PTRACE_EVENT_STOP && (info.si_code & 0xFF) == SIGTRAP;
}

/// Is the thread in a stop that a debugger resumes without a signal: by its own SIGSTOP, a breakpoint, a
/// step, or Ctrl-C? In the stops of `catch syscall` or `catch fork` it is in the middle of a call.
bool is_in_debuggers_stop(pid_t tid) {
  siginfo_t info{};
  if (::ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return false;
  if (info.si_signo == SIGSTOP || info.si_signo == SIGINT) return true;
  return info.si_signo == SIGTRAP &&
         ((info.si_code >= TRAP_BRKPT && info.si_code <= TRAP_HWBKPT) || info.si_code == SI_KERNEL);
}

/// Does the thread execute 64-bit code? (the kernel's __USER_CS; Wine runs 32-bit code in 64-bit processes)
bool is_fit(const user_regs_struct& registers) {
  constexpr unsigned long long user_code_segment = 0x33;
  return registers.cs == user_code_segment;
}

bool is_in_call(const user_regs_struct& registers) {
  return static_cast<std::int64_t>(registers.orig_rax) >= 0;
}

/// The threads that can make calls, best first. One that computes may be inside a restartable sequence
/// (rseq), which the kernel takes for left when it sees the thread elsewhere.
std::vector<pid_t> fit_threads(const Standstill& stillness) {
  std::vector<pid_t> waiting, computing;
  for (const pid_t tid : stillness.threads()) {
    user_regs_struct registers{};
    if (!(stillness.is_debuggers() ? is_in_debuggers_stop(tid) : is_in_interrupt_stop(tid)) ||
        ::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) != 0 || !is_fit(registers))
      continue;
    (is_in_call(registers) ? waiting : computing).push_back(tid);
    constexpr std::size_t enough = 8;
    if (waiting.size() == enough) break;
  }
  waiting.insert(waiting.end(), computing.begin(), computing.end());
  return waiting;
}

}  // namespace

Result<RemoteCalls> RemoteCalls::borrow(const Target& target, Standstill& stillness, CallPlace place) {
  const std::vector<pid_t> threads = fit_threads(stillness);
  bool filtered = false;
  for (const bool with_filter : {false, true})
    for (const pid_t tid : threads) {
      if ((seccomp_mode(target.pid(), tid) != 0) != with_filter) continue;
      if (with_filter &&
          (stillness.is_debuggers() || ::ptrace(PTRACE_SETOPTIONS, tid, nullptr,
                                                PTRACE_O_TRACESYSGOOD | PTRACE_O_SUSPEND_SECCOMP) != 0)) {
        filtered = true;
        continue;
      }
      RemoteCalls calls(stillness.late_signals(), &stillness, tid, place,
                        stillness.is_debuggers() ? Parking::signal : Parking::interrupt);
      if (calls.take()) return calls;
      calls.tid_ = -1;
    }
  if (filtered)
    return fail(ErrorCode::kernel_feature,
                fmt::format("process {} has a seccomp filter that cannot be suspended", target.pid()),
                "run as root, on a kernel with CONFIG_CHECKPOINT_RESTORE");
  return fail(ErrorCode::not_stoppable,
              fmt::format("no thread of process {} is fit for a call", target.pid()),
              stillness.is_debuggers() ? "all of them have stopped in a call or for a signal; continue once"
                                       : "all of them are about to receive signals; try again");
}

Result<RemoteCalls> RemoteCalls::in_stop(pid_t tid, std::uint64_t syscall_address,
                                         std::vector<HeldSignal>& late) {
  RemoteCalls calls(late, nullptr, tid, {std::nullopt, {}, syscall_address}, Parking::system_call);
  if (calls.take()) return calls;
  calls.tid_ = -1;
  return fail(ErrorCode::process_ended, fmt::format("thread {} has ended", tid));
}

RemoteCalls::RemoteCalls(RemoteCalls&& other) noexcept
    : late_(other.late_),
      stillness_(other.stillness_),
      tid_(std::exchange(other.tid_, -1)),
      place_(std::move(other.place_)),
      parking_(other.parking_),
      registers_(other.registers_),
      signal_mask_(other.signal_mask_),
      restarts_calls_(other.restarts_calls_) {}

RemoteCalls::~RemoteCalls() {
  if (tid_ > 0) give_back();
}

std::uint64_t RemoteCalls::syscall_address() const {
  return place_.room ? call_entry(*place_.room) : place_.syscall_address;
}

bool RemoteCalls::set_mask(std::uint64_t mask) {
  return ::ptrace(PTRACE_SETSIGMASK, tid_, reinterpret_cast<void*>(sizeof mask), &mask) == 0;
}

bool RemoteCalls::take() {
  if (::ptrace(PTRACE_GETREGS, tid_, nullptr, &registers_) != 0) return false;
  const auto mask_size = reinterpret_cast<void*>(sizeof signal_mask_);
  if (::ptrace(PTRACE_GETSIGMASK, tid_, mask_size, &signal_mask_) != 0) return false;
  // In this order: from each step on the thread finds home by itself.
  if (auto room = std::exchange(place_.room, std::nullopt); room && !enter(std::move(*room))) return false;
  return set_mask(all_signals);
}

/// The registers with which the thread goes on as if it had never been lent: the kernel restarts an
/// interrupted call itself only for the registers and the stop that it was found in
/// (arch/x86/kernel/signal.c, arch_do_signal_or_restart).
user_regs_struct RemoteCalls::registers_at_home() const {
  user_regs_struct registers = registers_;
  const auto result = static_cast<std::int64_t>(registers.rax);
  if (!is_in_call(registers)) return registers;
  if (result >= restart_first && result <= restart_last) {
    registers.rax = registers.orig_rax;
    registers.rip -= syscall_length;
  } else if (result == restart_by_block) {
    registers.rax = SYS_restart_syscall;
    registers.rip -= syscall_length;
  }
  registers.orig_rax = all_signals;
  return registers;
}

/// The thread is on its way back in that room from then on.
bool RemoteCalls::enter(CallRoom room) {
  user_regs_struct registers = registers_;
  registers.rip = way_back(room);
  registers.orig_rax = all_signals;  // -1: there is no interrupted call to restart
  if (!stillness_->write(room.address,
                         call_room_code(room.address, place_.nonce, registers_at_home(), signal_mask_)))
    return false;
  if (::ptrace(PTRACE_SETREGS, tid_, nullptr, &registers) != 0) return false;
  place_.room = std::move(room);
  return true;
}

Result<void> RemoteCalls::move_to(CallRoom room) {
  const auto before = place_.room;
  if (!enter(std::move(room)))
    return fail(ErrorCode::not_permitted, fmt::format("thread {} cannot be moved", tid_), {}, errno);
  if (before) stillness_->write(before->address, before->original);
  return {};
}

/// From behind a call into the stop before a SIGSTOP is delivered; all other signals are blocked, and no
/// instruction of the program comes in between.
void RemoteCalls::stop_by_signal() {
  if (::syscall(SYS_tkill, tid_, SIGSTOP) != 0) return;
  if (::ptrace(PTRACE_CONT, tid_, nullptr, nullptr) != 0) return;
  const auto status = wait_for_any_stop(tid_, monotonic_ns() + stop_patience_ns);
  restarts_calls_ = status && is_signal_stop(*status);
}

void RemoteCalls::give_back() {
  if (parking_ == Parking::signal && !restarts_calls_) stop_by_signal();
  // Left in another stop than the one it was found in, the kernel does not restart an interrupted call
  // itself.
  const user_regs_struct registers = restarts_calls_ ? registers_ : registers_at_home();
  set_mask(signal_mask_);
  const bool is_home = ::ptrace(PTRACE_SETREGS, tid_, nullptr, &registers) == 0;
  // Of a thread that did not stop again nobody knows where it is.
  if (is_home && place_.room) stillness_->write(place_.room->address, place_.room->original);
  if (parking_ == Parking::interrupt) ::ptrace(PTRACE_SETOPTIONS, tid_, nullptr, PTRACE_O_TRACESYSGOOD);
}

Result<int> RemoteCalls::resume(int request) {
  if (::ptrace(static_cast<__ptrace_request>(request), tid_, nullptr, nullptr) != 0)
    return fail(ErrorCode::process_ended, fmt::format("thread {} has ended", tid_), {}, errno);
  auto status = wait_for_stop(tid_, request, *late_);
  restarts_calls_ = status && is_event_stop(*status);
  return status;
}

Result<std::uint64_t> RemoteCalls::call(std::int64_t number, const std::array<std::uint64_t, 6>& arguments) {
  user_regs_struct registers = registers_;
  registers.rax = static_cast<std::uint64_t>(number);
  registers.rdi = arguments[0];
  registers.rsi = arguments[1];
  registers.rdx = arguments[2];
  registers.r10 = arguments[3];
  registers.r8 = arguments[4];
  registers.r9 = arguments[5];
  registers.rip = syscall_address();
  registers.orig_rax = all_signals;  // -1: there is no interrupted call to restart
  if (::ptrace(PTRACE_SETREGS, tid_, nullptr, &registers) != 0)
    return fail(ErrorCode::process_ended, fmt::format("thread {} has ended", tid_), {}, errno);
  return run();
}

Result<std::uint64_t> RemoteCalls::call_or_fail(const char* name, std::int64_t number,
                                                const std::array<std::uint64_t, 6>& arguments) {
  auto result = call(number, arguments);
  if (!result || !is_syscall_error(*result)) return result;
  return fail(ErrorCode::unsupported_target, fmt::format("the target cannot make the call {}", name), {},
              static_cast<int>(-static_cast<std::int64_t>(*result)));
}

/// To the entry of the call, to its exit, and to a new interrupt stop. System call stops, unlike single
/// steps, come without a SIGTRAP: that would reset the handler of a target that blocks it.
Result<std::uint64_t> RemoteCalls::run() {
  for (int stops = 0; stops < 2;) {
    const auto status = resume(PTRACE_SYSCALL);
    if (!status) return tl::make_unexpected(status.error());
    if (is_syscall_stop(*status)) ++stops;
  }
  user_regs_struct after{};
  if (::ptrace(PTRACE_GETREGS, tid_, nullptr, &after) != 0 || after.rip != syscall_address() + syscall_length)
    return fail(ErrorCode::not_stoppable,
                fmt::format("thread {} is at {:#x} after a call, {:#x} was expected", tid_, after.rip,
                            syscall_address() + syscall_length));
  if (parking_ != Parking::interrupt) return after.rax;
  ::ptrace(PTRACE_INTERRUPT, tid_, nullptr, nullptr);
  const auto status = resume(PTRACE_CONT);
  if (!status) return tl::make_unexpected(status.error());
  return after.rax;
}

}  // namespace whomap
