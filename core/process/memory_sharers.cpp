// SPDX-License-Identifier: Apache-2.0
#include "core/process/memory_sharers.h"

#include <dirent.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/process/status.h"

namespace whomap {
namespace {

/// Does a thread of this process wait for a vfork child? It sleeps in clone, vfork or clone3 (x86-64
/// numbers), where nothing else keeps a thread for long.
bool waits_for_vfork(const Target& target) {
  for (const pid_t tid : target.threads()) {
    const auto status = read_file(fmt::format("/proc/{}/task/{}/status", target.pid(), tid));
    if (!status || parse_status(*status).state != 'D') continue;
    const auto call = read_file(fmt::format("/proc/{}/task/{}/syscall", target.pid(), tid));
    if (call && (call->starts_with("56 ") || call->starts_with("58 ") || call->starts_with("435 ")))
      return true;
  }
  return false;
}

bool is_child_of(pid_t pid, pid_t parent) {
  const auto status = read_status(pid);
  return status && status->ppid == parent;
}

}  // namespace

std::vector<pid_t> memory_sharers(const Target& target) {
  std::vector<pid_t> sharers;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
  while (const dirent* const entry = processes ? ::readdir(processes.get()) : nullptr) {
    pid_t pid = 0;
    const std::string_view name = entry->d_name;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (problem != std::errc{} || end != name.data() + name.size() || pid == target.pid()) continue;
    if (::syscall(SYS_kcmp, target.pid(), pid, KCMP_VM, 0, 0) != 0) continue;
    if (is_child_of(pid, target.pid()) && waits_for_vfork(target)) continue;
    sharers.push_back(pid);
  }
  return sharers;
}

}  // namespace whomap
