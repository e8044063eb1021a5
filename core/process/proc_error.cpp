// SPDX-License-Identifier: Apache-2.0
#include "core/process/proc_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/unique_fd.h"

namespace whomap {

namespace {

Result<void> read_until(const std::string& path, std::uint64_t deadline_ns,
                        const std::function<void(std::string_view)>& piece) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail(ErrorCode::input_unreadable, fmt::format("cannot open {}", path), {}, errno);
  std::array<char, 65536> chunk{};
  while (monotonic_ns() < deadline_ns) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got == 0) return {};
    if (got < 0 && errno != EINTR)
      return fail(ErrorCode::input_unreadable, fmt::format("cannot read {}", path), {}, errno);
    if (got > 0) piece({chunk.data(), static_cast<std::size_t>(got)});
  }
  return fail(ErrorCode::input_unreadable, fmt::format("{} could not be read in time", path));
}

}  // namespace

Result<void> read_proc_pieces(pid_t pid, const std::string& file,
                              const std::function<void(std::string_view)>& piece,
                              std::optional<std::uint64_t> deadline_ns) {
  const std::string path = fmt::format("/proc/{}/{}", pid, file);
  auto read = deadline_ns ? read_until(path, *deadline_ns, piece) : read_in_pieces(path, piece);
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
