// SPDX-License-Identifier: Apache-2.0
#include "core/process/page_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace whomap {
namespace {
constexpr std::uint64_t present = std::uint64_t{1} << 63;
constexpr std::uint64_t swapped = std::uint64_t{1} << 62;
constexpr std::uint64_t file_or_shared = std::uint64_t{1} << 61;
}  // namespace

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
  return select(range, present | swapped, own_only ? file_or_shared : 0);
}

std::vector<AddressRange> PageMap::resident(AddressRange range) const {
  return select(range, present, 0);
}

std::vector<AddressRange> PageMap::own_resident(AddressRange range) const {
  return select(range, present, file_or_shared);
}

std::vector<AddressRange> PageMap::select(AddressRange range, std::uint64_t any, std::uint64_t none) const {
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
      if ((entries[i] & any) == 0 || (entries[i] & none) != 0) continue;
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
