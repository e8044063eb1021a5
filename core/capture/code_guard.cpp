// SPDX-License-Identifier: Apache-2.0
#include "core/capture/code_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/base/unique_fd.h"
#include "core/process/status.h"
#include "core/process/vma.h"

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

bool write_byte(int memory, std::uint64_t address, std::uint8_t byte) {
  return ::pwrite(memory, &byte, 1, static_cast<off_t>(address)) == 1;
}

std::set<std::uint64_t> breakpoint_addresses(const Plan& plan) {
  std::set<std::uint64_t> addresses;
  for (const Site& site : plan.sites) {
    if (site.watch == WatchKind::none) continue;
    addresses.insert(site.return_address);
    if (site.watch == WatchKind::paired_breakpoints) addresses.insert(site.syscall_address);
  }
  return addresses;
}

/// Stopped by job control with nobody tracing it: what a killed tracer leaves.
bool is_left_stopped(pid_t pid) {
  const auto status = read_status(pid);
  return status && status->state == 'T' && status->tracer_pid == 0;
}

/// The stop can show some time after the tracer's death, when the thread gets to run.
bool resume_if_left_stopped(const Target& target) {
  constexpr int looks = 25;
  constexpr int pause_ms = 20;
  for (int look = 0; look < looks; ++look) {
    if (is_left_stopped(target.pid()))
      return ::syscall(SYS_pidfd_send_signal, target.pidfd(), SIGCONT, nullptr, 0) == 0;
    pollfd ended{target.pidfd(), POLLIN, 0};
    if (::poll(&ended, 1, pause_ms) != 0) return false;
  }
  return false;
}

}  // namespace

Result<CodeGuard> CodeGuard::record(const Target& target, const Plan& plan) {
  const UniqueFd memory = open_memory(target.pid(), O_RDONLY);
  if (!memory.valid()) {
    const int why = errno;
    if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
    return fail(ErrorCode::not_permitted,
                fmt::format("the memory of process {} may not be read", target.pid()), "run as root (sudo)",
                why);
  }
  const auto maps = read_maps(target.pid());
  if (!maps) return tl::make_unexpected(maps.error());
  CodeGuard guard({});
  for (const std::uint64_t address : breakpoint_addresses(plan)) {
    const auto byte = byte_at(memory.get(), address);
    const Vma* const vma = find_vma(maps->vmas, address);
    if (!byte || vma == nullptr) {
      if (auto alive = target.check(); !alive) return tl::make_unexpected(alive.error());
      return fail(ErrorCode::plan_mismatch,
                  fmt::format("process {} has no memory at {:#x}", target.pid(), address),
                  "the plan is not for what the process has mapped now: make a new one");
    }
    if (*byte == int3)
      return fail(
          ErrorCode::already_traced,
          fmt::format("a breakpoint is already at {:#x} in process {}", address, target.pid()),
          "another debugger is at work, or a killed one left it: end that one, or restart the process");
    guard.originals_.push_back({address, *byte, vma->inode, vma->offset + (address - vma->start)});
  }
  return guard;
}

CodeGuard::Outcome CodeGuard::take_out(const Target& target) const {
  Outcome outcome;
  const auto maps = read_maps(target.pid());
  if (!maps || !target.check())
    return outcome;  // another program may have these addresses for something else
  const UniqueFd memory = open_memory(target.pid(), O_RDWR);
  for (const Original& original : originals_) {
    const auto now = byte_at(memory.get(), original.address);
    if (!now) continue;  // unmapped: nothing is left to put back
    const Vma* const vma = find_vma(maps->vmas, original.address);
    const bool same_mapping =
        vma != nullptr && vma->executable && vma->inode == original.inode &&
        (vma->inode == 0 || vma->offset + (original.address - vma->start) == original.file_offset);
    if (!same_mapping || (*now != int3 && *now != original.byte)) {
      outcome.foreign.push_back({original.address, *now});
    } else if (*now == int3) {
      const bool wrote = write_byte(memory.get(), original.address, original.byte);
      (wrote ? outcome.restored : outcome.failed).push_back(original.address);
    }
  }
  return outcome;
}

void CodeGuard::put_back(const Target& target, const std::vector<Foreign>& foreign) const {
  if (foreign.empty() || !target.check()) return;
  const UniqueFd memory = open_memory(target.pid(), O_RDWR);
  for (const Foreign& each : foreign) {
    const auto recorded = std::find_if(originals_.begin(), originals_.end(), [&](const Original& original) {
      return original.address == each.address;
    });
    // Only what the debugger wrote is undone; a byte that its owner has changed since stays.
    if (recorded == originals_.end() || byte_at(memory.get(), each.address) != recorded->byte) continue;
    (void)write_byte(memory.get(), each.address, each.byte);
  }
}

CodeGuard::Outcome CodeGuard::restore(const Target& target, bool tracer_died) const {
  const auto status = read_status(target.pid());
  if (!status || status->tracer_pid.value_or(0) != 0) return {};
  Outcome outcome = take_out(target);
  if (tracer_died) outcome.resumed = resume_if_left_stopped(target);
  return outcome;
}

}  // namespace whomap
