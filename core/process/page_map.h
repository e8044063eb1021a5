// SPDX-License-Identifier: Apache-2.0
// /proc/PID/pagemap: which pages of a process hold something, and which of those are its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/process/vma.h"

namespace whomap {

class PageMap {
 public:
  /// Errors: not_permitted or process_ended, with the errno of the open.
  static Result<PageMap> open(pid_t pid, std::uint64_t page_size);

  /// Runs of pages in `range` that are present or swapped out, and, with `own_only`, are neither file pages
  /// nor shared memory (bit 61, Documentation/admin-guide/mm/pagemap.rst): written by someone.
  [[nodiscard]] std::vector<AddressRange> pages(AddressRange range, bool own_only) const;

  /// Runs of pages in `range` that are in memory now. The shared page of zeros, which reading untouched
  /// memory maps, is among them; Rss does not count it.
  [[nodiscard]] std::vector<AddressRange> resident(AddressRange range) const;
  /// The same without pages of files and shared memory.
  [[nodiscard]] std::vector<AddressRange> own_resident(AddressRange range) const;

 private:
  PageMap(UniqueFd fd, std::uint64_t page_size) : fd_(std::move(fd)), page_size_(page_size) {}
  /// Pages with a bit of `any` and none of `none`.
  [[nodiscard]] std::vector<AddressRange> select(AddressRange range, std::uint64_t any,
                                                 std::uint64_t none) const;

  UniqueFd fd_;
  std::uint64_t page_size_;
};

}  // namespace whomap
