// SPDX-License-Identifier: Apache-2.0
#include "core/process/memory_sharers.h"

#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/process/proc_ids.h"
#include "core/process/status.h"
#include "core/process/vfork.h"

namespace whomap {
namespace {

bool is_child_of(pid_t pid, pid_t parent) {
  const auto status = read_status(pid);
  return status && status->ppid == parent;
}

}  // namespace

std::vector<pid_t> memory_sharers(const Target& target) {
  std::vector<pid_t> sharers;
  for (const pid_t pid : proc_ids("/proc")) {
    if (pid == target.pid()) continue;
    if (::syscall(SYS_kcmp, target.pid(), pid, KCMP_VM, 0, 0) != 0) continue;
    if (is_child_of(pid, target.pid()) && find_vfork_parent(target) != 0) continue;
    sharers.push_back(pid);
  }
  return sharers;
}

}  // namespace whomap
