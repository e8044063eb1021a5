// SPDX-License-Identifier: Apache-2.0
#include "core/trace/line_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace whomap {
namespace {
constexpr std::size_t first_buffer = std::size_t{1} << 20;
constexpr std::size_t peek_size = std::size_t{64} << 10;
}  // namespace

Result<LineSource> LineSource::open(const std::string& path) {
  LineSource source;
  source.path_ = path;
  source.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source.fd_.valid())
    return fail(ErrorCode::input_unreadable, fmt::format("cannot open {}", path), {}, errno);
  struct stat status {};
  if (::fstat(source.fd_.get(), &status) == 0 && S_ISDIR(status.st_mode))
    return fail(ErrorCode::input_unreadable, fmt::format("{} is a folder", path), "name a file");
  source.buffer_.resize(first_buffer);
  return source;
}

LineSource LineSource::over(std::string_view text) {
  LineSource source;
  source.rest_ = text;
  source.at_end_ = true;
  return source;
}

/// Makes room behind what is left, then reads once. False at the end of the file.
Result<bool> LineSource::refill() {
  if (at_end_) return false;
  const std::size_t left = rest_.size();
  if (left != 0 && rest_.data() != buffer_.data()) std::memmove(buffer_.data(), rest_.data(), left);
  if (left == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  for (;;) {
    const ssize_t got = ::read(fd_.get(), buffer_.data() + left, buffer_.size() - left);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int why = errno;
      at_end_ = true;
      return fail(ErrorCode::input_unreadable, fmt::format("cannot read {}", path_), {}, why);
    }
    at_end_ = got == 0;
    rest_ = {buffer_.data(), left + static_cast<std::size_t>(got)};
    return got != 0;
  }
}

Result<std::string_view> LineSource::peek() {
  while (rest_.size() < peek_size) {
    const auto more = refill();
    if (!more) return tl::make_unexpected(more.error());
    if (!*more) break;
  }
  return rest_.substr(0, peek_size);
}

Result<std::optional<LineSource::Line>> LineSource::next() {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t newline = rest_.find('\n', searched);
    if (newline != std::string_view::npos) {
      Line line{rest_.substr(0, newline), true, skipping_};
      if (skipping_) line.text = {};
      rest_.remove_prefix(newline + 1);
      skipping_ = false;
      ++line_number_;
      return line;
    }
    searched = rest_.size();
    if (searched > longest_line) {
      skipping_ = true;
      rest_ = {};
      searched = 0;
    }
    const auto more = refill();
    if (!more) return tl::make_unexpected(more.error());
    if (*more) continue;
    if (rest_.empty() && !skipping_) return std::nullopt;
    Line line{skipping_ ? std::string_view{} : rest_, false, skipping_};
    rest_ = {};
    skipping_ = false;
    ++line_number_;
    return line;
  }
}

}  // namespace whomap
