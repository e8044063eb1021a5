// SPDX-License-Identifier: Apache-2.0
#include "core/capture/code_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/base/unique_fd.h"
#include "core/process/status.h"

namespace whomap {
namespace {

constexpr std::uint8_t int3 = 0xCC;

UniqueFd open_memory(pid_t pid, int mode) {
  return UniqueFd(::open(fmt::format("/proc/{}/mem", pid).c_str(), mode | O_CLOEXEC));
}

std::optional<std::uint8_t> byte_at(int memory, std::uint64_t address) {
  std::uint8_t byte = 0;
  if (::pread(memory, &byte, 1, static_cast<off_t>(address)) != 1) return std::nullopt;
  return byte;
}

}  // namespace

Result<CodeGuard> CodeGuard::record(const Target& target, const Plan& plan) {
  const UniqueFd memory = open_memory(target.pid(), O_RDONLY);
  if (!memory.valid())
    return fail(ErrorCode::not_permitted, fmt::format("the memory of process {} may not be read", target.pid()),
                "run as root (sudo)", errno);
  std::set<std::uint64_t> addresses;
  for (const Site& site : plan.sites) {
    if (site.watch == WatchKind::none) continue;
    addresses.insert(site.return_address);
    if (site.watch == WatchKind::paired_breakpoints) addresses.insert(site.syscall_address);
  }
  CodeGuard guard;
  for (const std::uint64_t address : addresses) {
    const auto byte = byte_at(memory.get(), address);
    if (!byte) {
      if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
      return fail(ErrorCode::plan_mismatch, fmt::format("process {} has no memory at {:#x}", target.pid(), address),
                  "the plan is not for what the process has mapped now: make a new one");
    }
    if (*byte == int3)
      return fail(ErrorCode::plan_mismatch,
                  fmt::format("a breakpoint is already at {:#x} in process {}", address, target.pid()),
                  "another debugger or a killed tracer left it; restart the process, or leave that site out");
    guard.originals_.push_back({address, *byte});
  }
  return guard;
}

CodeGuard::Outcome CodeGuard::restore(const Target& target, bool tracer_died) const {
  Outcome outcome;
  // Another program may have these addresses for something else.
  if (!target.check()) return outcome;
  const UniqueFd memory = open_memory(target.pid(), O_RDWR);
  for (const Original& original : originals_) {
    const auto now = byte_at(memory.get(), original.address);
    if (now == original.byte) continue;
    if (!now) {
      outcome.failed.push_back(original.address);
    } else if (*now != int3) {
      outcome.foreign.push_back(original.address);
    } else if (::pwrite(memory.get(), &original.byte, 1, static_cast<off_t>(original.address)) == 1) {
      outcome.restored.push_back(original.address);
    } else {
      outcome.failed.push_back(original.address);
    }
  }
  if (!tracer_died) return outcome;
  if (const auto status = read_status(target.pid()); status && status->state == 'T' && status->tracer_pid == 0)
    outcome.resumed = ::syscall(SYS_pidfd_send_signal, target.pidfd(), SIGCONT, nullptr, 0) == 0;
  return outcome;
}

}  // namespace whomap
