// SPDX-License-Identifier: Apache-2.0
#include "core/process/proc_error.h"

#include <cerrno>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {

Result<void> read_proc_pieces(pid_t pid, const std::string& file,
                              const std::function<void(std::string_view)>& piece) {
  auto read = read_in_pieces(fmt::format("/proc/{}/{}", pid, file), piece);
  if (read) return read;
  switch (read.error().os_error) {
    case ENOENT:
    case ESRCH:
      return fail(ErrorCode::no_such_process, fmt::format("there is no process {}", pid),
                  "check the pid with ps; the process may have ended");
    case EACCES:
    case EPERM:
      return fail(ErrorCode::not_permitted, fmt::format("/proc/{}/{} may not be read", pid, file),
                  "run as the user of the process or as root");
    default: return read;
  }
}

Result<std::string> read_proc_file(pid_t pid, const std::string& file) {
  std::string text;
  auto read = read_proc_pieces(pid, file, [&](std::string_view piece) { text.append(piece); });
  if (!read) return tl::make_unexpected(read.error());
  return text;
}

}  // namespace whomap
