// SPDX-License-Identifier: Apache-2.0
// Which thread made a call that was recorded without asking the kernel: the C library keeps the thread's id
// in its descriptor, at a place that is learned from threads whose id is known.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace whomap {

class ThreadFinder {
 public:
  /// `known`: ids and fs bases of threads at one moment. The id's place is the one offset from fs_base, below
  /// 4096, at which every known thread has its own id; none, or more than one with a single thread known, is
  /// not used.
  ThreadFinder(pid_t pid, std::span<const std::pair<pid_t, std::uint64_t>> known);

  /// The thread whose descriptor is at `thread_base` now; 0: unknown. A thread that has ended since may have
  /// left its descriptor to another one.
  pid_t find(std::uint64_t thread_base);

  [[nodiscard]] bool knows_place() const { return offset_.has_value(); }

 private:
  pid_t pid_;
  std::optional<std::uint64_t> offset_;
  struct Known {
    pid_t tid;
    std::uint64_t looked_ns;  ///< when the thread was last seen to live
  };
  std::unordered_map<std::uint64_t, Known> known_;
};

}  // namespace whomap
