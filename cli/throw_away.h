// SPDX-License-Identifier: Apache-2.0
// The process on which a GDB is proven.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap::cli {

/// One call that it has made.
struct PractisedCall {
  std::int64_t number = 0;
  std::uint64_t length = 0;
  std::uint64_t result = 0;
  bool operator==(const PractisedCall&) const = default;
};

/// This program again, as `whomap throw-away`: it maps and unmaps memory when it is told to, through libc's
/// mmap and munmap and through syscall(), and tells what it did.
class ThrowAway {
 public:
  static constexpr std::size_t most_calls = 64;

  /// Waits until it is ready. Error kernel_feature when it does not start.
  static Result<ThrowAway> start();
  ThrowAway(ThrowAway&& other) noexcept;
  ThrowAway& operator=(ThrowAway&&) = delete;
  ~ThrowAway();  ///< ends it

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable when it has made its calls, or has ended.
  [[nodiscard]] int fd() const { return channel_.get(); }
  void make_calls() const;
  /// What it did; nothing when it has ended.
  [[nodiscard]] std::optional<std::vector<PractisedCall>> calls_made() const;

 private:
  ThrowAway(UniqueFd channel, pid_t pid) : channel_(std::move(channel)), pid_(pid) {}
  UniqueFd channel_;
  pid_t pid_;
};

}  // namespace whomap::cli
