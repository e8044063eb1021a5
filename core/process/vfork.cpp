// SPDX-License-Identifier: Apache-2.0
#include "core/process/vfork.h"

#include <sys/syscall.h>

#include <cstdlib>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {

char task_state(pid_t pid, pid_t tid) {
  const auto stat = read_file(fmt::format("/proc/{}/task/{}/stat", pid, tid));
  if (!stat) return 'X';
  const std::size_t name_end = stat->rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat->size() ? '?' : (*stat)[name_end + 2];
}

pid_t find_vfork_parent(const Target& target) {
  for (const pid_t tid : target.threads()) {
    if (task_state(target.pid(), tid) != 'D') continue;
    const auto call = read_file(fmt::format("/proc/{}/task/{}/syscall", target.pid(), tid));
    const long number = call ? std::strtol(call->c_str(), nullptr, 10) : -1;
    if (number == SYS_vfork || number == SYS_clone || number == SYS_clone3) return tid;
  }
  return 0;
}

}  // namespace whomap
