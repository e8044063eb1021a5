// SPDX-License-Identifier: Apache-2.0
#include "core/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace whomap {

Result<void> read_in_pieces(const std::string& path, const std::function<void(std::string_view)>& piece) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail(ErrorCode::input_unreadable, fmt::format("cannot open {}", path), {}, errno);
  std::array<char, 65536> chunk;
  for (;;) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got == 0) return {};
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail(ErrorCode::input_unreadable, fmt::format("cannot read {}", path), {}, errno);
    }
    piece({chunk.data(), static_cast<std::size_t>(got)});
  }
}

Result<std::string> read_file(const std::string& path) {
  std::string content;
  auto read = read_in_pieces(path, [&](std::string_view piece) { content.append(piece); });
  if (!read) return tl::make_unexpected(read.error());
  return content;
}

Result<OutputFile> OutputFile::create(const std::string& path, bool overwrite) {
  if (path == "-") {
    const int copy = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return fail(ErrorCode::output_unwritable, "standard output is closed", {}, errno);
    return OutputFile(UniqueFd(copy), "standard output");
  }
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int fd = ::open(path.c_str(), flags, 0600);
  if (fd < 0 && errno == EEXIST) {
    if (!overwrite)
      return fail(ErrorCode::output_exists, fmt::format("{} exists already", path),
                  "choose another name with -o, or give --force to replace it");
    // Replaced, not truncated: a link or a file that somebody else holds open keeps its content.
    struct stat there {};
    if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
      return fail(ErrorCode::output_unwritable, fmt::format("{} is not a regular file", path),
                  "choose another name with -o; only regular files are replaced");
    if (::unlink(path.c_str()) == 0) fd = ::open(path.c_str(), flags, 0600);
  }
  if (fd < 0)
    return fail(ErrorCode::output_unwritable, fmt::format("cannot create {}", path),
                "choose a writable place with -o", errno);
  return OutputFile(UniqueFd(fd), path);
}

Result<void> OutputFile::write(std::string_view text) {
  constexpr std::size_t enough = 65536;
  buffer_.append(text);
  if (buffer_.size() < enough) return {};
  return flush();
}

Result<void> OutputFile::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t wrote = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      const int why = errno;
      buffer_.erase(0, done);
      return fail(ErrorCode::output_unwritable, fmt::format("cannot write {}", path_),
                  "free some space or choose another place with -o", why);
    }
    done += static_cast<std::size_t>(wrote);
  }
  buffer_.clear();
  return {};
}

Result<void> OutputFile::finish() {
  if (auto flushed = flush(); !flushed) return flushed;
  if (::close(fd_.release()) != 0)
    return fail(ErrorCode::output_unwritable, fmt::format("cannot write {}", path_),
                "free some space or choose another place with -o", errno);
  return {};
}

}  // namespace whomap
