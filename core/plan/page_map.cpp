// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "core/plan/code_view.h"

namespace whomap {

Result<PageMap> PageMap::open(pid_t pid, std::uint64_t page_size) {
  const std::string path = fmt::format("/proc/{}/pagemap", pid);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    const int why = errno;
    const ErrorCode code = why == EACCES || why == EPERM ? ErrorCode::not_permitted
                           : why == ENOENT               ? ErrorCode::kernel_feature
                                                         : ErrorCode::process_ended;
    return fail(code, fmt::format("cannot read {}", path), {}, why);
  }
  return PageMap(std::move(fd), page_size);
}

std::vector<AddressRange> PageMap::pages(AddressRange range, bool own_only) const {
  constexpr std::uint64_t present = std::uint64_t{1} << 63;
  constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
  constexpr std::uint64_t file_or_shared = std::uint64_t{1} << 61;
  std::vector<AddressRange> runs;
  std::array<std::uint64_t, 8192> entries{};
  const std::uint64_t last = (range.end + page_size_ - 1) / page_size_;
  for (std::uint64_t page = range.start / page_size_; page < last;) {
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(entries.size(), last - page));
    const ssize_t got = ::pread(fd_.get(), entries.data(), wanted * sizeof(std::uint64_t),
                                static_cast<off_t>(page * sizeof(std::uint64_t)));
    const std::size_t count = got <= 0 ? 0 : static_cast<std::size_t>(got) / sizeof(std::uint64_t);
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i, ++page) {
      if ((entries[i] & (present | swapped)) == 0) continue;
      if (own_only && (entries[i] & file_or_shared) != 0) continue;
      const std::uint64_t start = std::max(page * page_size_, range.start);
      const std::uint64_t end = std::min((page + 1) * page_size_, range.end);
      if (!runs.empty() && runs.back().end == start)
        runs.back().end = end;
      else
        runs.push_back({start, end});
    }
  }
  return runs;
}

}  // namespace whomap
