// SPDX-License-Identifier: Apache-2.0
#include "core/process/proc_error.h"

#include <cerrno>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {

Result<std::string> read_proc_file(pid_t pid, const std::string& file) {
  auto text = read_file(fmt::format("/proc/{}/{}", pid, file));
  if (text) return text;
  switch (text.error().os_error) {
    case ENOENT:
    case ESRCH:
      return fail(ErrorCode::no_such_process, fmt::format("there is no process {}", pid),
                  "check the pid with ps; the process may have ended");
    case EACCES:
    case EPERM:
      return fail(ErrorCode::not_permitted, fmt::format("/proc/{}/{} may not be read", pid, file),
                  "run as the user of the process or as root");
    default: return text;
  }
}

}  // namespace whomap
