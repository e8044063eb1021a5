// SPDX-License-Identifier: Apache-2.0
#include "core/stub/standstill.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/process/memory.h"
#include "core/process/vfork.h"

namespace whomap {
namespace {

constexpr std::uint64_t ns_per_us = 1000;
constexpr std::uint64_t ns_per_ms = 1'000'000;

void pause_us(long microseconds) {
  const timespec pause{0, microseconds * 1000};
  ::nanosleep(&pause, nullptr);
}

bool is_ending(char state) {
  return state == 'Z' || state == 'X';
}

tl::unexpected<Error> cannot_stop(const Target& target, pid_t tid) {
  const auto call = read_file(fmt::format("/proc/{}/task/{}/syscall", target.pid(), tid));
  const std::string number = call ? call->substr(0, call->find_first_of(" \n")) : "";
  const bool in_call = !number.empty() && number != "running";
  return fail(
      ErrorCode::not_stoppable,
      fmt::format("thread {} of process {} could not be stopped in time{}", tid, target.pid(),
                  in_call ? fmt::format(", it is in system call {}", number) : ""),
      in_call ? "it waits for a vfork child, a device or a lock of the kernel; try again when that is over"
              : "the machine is busy; try again");
}

tl::unexpected<Error> seize_failed(const Target& target, pid_t tid, int why) {
  if (const auto status = read_status(target.pid()); status && status->tracer_pid.value_or(0) != 0)
    return fail(ErrorCode::already_traced,
                fmt::format("process {} is traced by process {}", target.pid(), *status->tracer_pid),
                "only one tracer is possible: end that one first");
  return fail(ErrorCode::not_permitted,
              fmt::format("thread {} of process {} may not be traced", tid, target.pid()),
              "run as root (sudo)", why);
}

}  // namespace

Result<Standstill> Standstill::begin(const Target& target, const StandstillLimits& limits) {
  const std::uint64_t deadline = monotonic_ns() + static_cast<std::uint64_t>(limits.patience_ms) * ns_per_ms;
  pid_t busy = 0;
  // Each attempt is given more time than the last: threads that wait for the lock of the address space stop
  // one after the other.
  constexpr std::uint64_t longest_attempt_ms = 100;
  for (std::uint64_t attempt_ms = static_cast<std::uint64_t>(limits.attempt_ms);;
       attempt_ms = std::min(2 * attempt_ms, longest_attempt_ms)) {
    // Looked at before anything is stopped, so that others do not wait for what cannot be hurried.
    busy = find_vfork_parent(target);
    while (busy != 0 && monotonic_ns() < deadline) {
      pause_us(1000);
      busy = find_vfork_parent(target);
    }
    Standstill still;
    still.pid_ = target.pid();
    still.began_ns_ = monotonic_ns();
    std::vector<pid_t> waiting;
    Result<void> problem;
    bool complete = false;
    while (!complete) {
      if (!still.seize_new(target, waiting, problem)) {
        complete = waiting.empty();
        if (complete) break;
      }
      if (!problem) return tl::make_unexpected(problem.error());
      still.collect(waiting);
      const std::uint64_t allowed =
          attempt_ms * ns_per_ms +
          static_cast<std::uint64_t>(limits.attempt_us_per_thread) * ns_per_us * still.stopped_.size();
      if (!waiting.empty() && still.nanoseconds() > allowed) break;
      if (!waiting.empty()) pause_us(20);
    }
    if (complete) {
      if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
      if (still.stopped_.empty())
        return fail(ErrorCode::process_ended, fmt::format("process {} has ended", target.pid()));
      return still;
    }
    busy = waiting.front();
    still.stragglers_ = std::move(waiting);
    still.end();
    if (monotonic_ns() > deadline) return cannot_stop(target, busy);
    if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
  }
}

Result<Standstill> Standstill::of_debugger(const Target& target) {
  Standstill still;
  still.pid_ = target.pid();
  still.began_ns_ = monotonic_ns();
  still.debuggers_ = true;
  for (const pid_t tid : target.threads()) {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) == 0)
      still.stopped_.push_back(tid);
    else if (!is_ending(task_state(target.pid(), tid)))
      return fail(ErrorCode::not_stoppable,
                  fmt::format("thread {} of process {} is not stopped by this debugger", tid, target.pid()),
                  "interrupt the process first");
  }
  if (still.stopped_.empty())
    return fail(ErrorCode::process_ended, fmt::format("process {} has ended", target.pid()));
  return still;
}

/// Seizes and interrupts threads that are new; true when there were any.
bool Standstill::seize_new(const Target& target, std::vector<pid_t>& waiting, Result<void>& problem) {
  bool found = false;
  for (const pid_t tid : target.threads()) {
    if (std::find(stopped_.begin(), stopped_.end(), tid) != stopped_.end()) continue;
    if (std::find(waiting.begin(), waiting.end(), tid) != waiting.end()) continue;
    if (::ptrace(PTRACE_SEIZE, tid, nullptr, PTRACE_O_TRACESYSGOOD) != 0) {
      const int why = errno;
      if (why == ESRCH || is_ending(task_state(pid_, tid))) continue;
      problem = seize_failed(target, tid, why);
      return true;
    }
    ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    waiting.push_back(tid);
    found = true;
  }
  return found;
}

/// Moves threads that have stopped from `waiting` to stopped_.
void Standstill::collect(std::vector<pid_t>& waiting) {
  // Costs a file for each thread, so not each time.
  constexpr unsigned one_in = 32;
  const bool look_for_endings = ++looks_ % one_in == 0;
  std::erase_if(waiting, [&](pid_t tid) {
    int status = 0;
    const pid_t got = ::waitpid(tid, &status, __WALL | WNOHANG);
    if (got == 0) return look_for_endings && is_ending(task_state(pid_, tid));
    if (got != tid || !WIFSTOPPED(status)) return true;  // it has ended
    if (is_signal_stop(status)) signals_.push_back({tid, WSTOPSIG(status)});
    stopped_.push_back(tid);
    return true;
  });
}

Standstill::Standstill(Standstill&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      stopped_(std::move(other.stopped_)),
      stragglers_(std::move(other.stragglers_)),
      signals_(std::move(other.signals_)),
      late_(std::move(other.late_)),
      looks_(other.looks_),
      debuggers_(other.debuggers_),
      began_ns_(other.began_ns_),
      ended_ns_(other.ended_ns_) {}

Standstill::~Standstill() {
  end();
}

void Standstill::let_go(pid_t tid) {
  const auto held =
      std::find_if(signals_.begin(), signals_.end(), [&](const HeldSignal& each) { return each.tid == tid; });
  const long signal = held == signals_.end() ? 0 : held->signal;
  ::ptrace(PTRACE_DETACH, tid, nullptr, signal);
}

void Standstill::end() {
  if (pid_ < 0) return;
  if (!debuggers_)
    for (const pid_t tid : stopped_) let_go(tid);
  for (const HeldSignal& each : late_) ::syscall(SYS_tgkill, pid_, each.tid, each.signal);
  ended_ns_ = monotonic_ns();
  stopped_.clear();
  // These will stop when what they wait for is over, and must not stay so.
  while (!stragglers_.empty()) {
    collect(stragglers_);
    for (const pid_t tid : stopped_) let_go(tid);
    stopped_.clear();
    if (!stragglers_.empty()) pause_us(200);
  }
  pid_ = -1;
}

std::uint64_t Standstill::nanoseconds() const {
  return (ended_ns_ != 0 ? ended_ns_ : monotonic_ns()) - began_ns_;
}

bool Standstill::write(std::uint64_t address, std::span<const std::uint8_t> bytes) {
  if (write_memory(pid_, address, bytes)) return true;
  for (std::size_t done = 0; done < bytes.size();) {
    const std::uint64_t at = (address + done) & ~std::uint64_t{sizeof(long) - 1};
    const std::size_t skip = address + done - at;
    const std::size_t length = std::min(sizeof(long) - skip, bytes.size() - done);
    errno = 0;
    long word = ::ptrace(PTRACE_PEEKDATA, stopped_.front(), at, nullptr);
    if (errno != 0) return false;
    std::memcpy(reinterpret_cast<char*>(&word) + skip, bytes.data() + done, length);
    if (::ptrace(PTRACE_POKEDATA, stopped_.front(), at, word) != 0) return false;
    done += length;
  }
  return true;
}

}  // namespace whomap
