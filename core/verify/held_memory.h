// SPDX-License-Identifier: Apache-2.0
// Memory that a process holds without mapping it: no Rss counts it, and a leak may move there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whomap {

/// Sums, over the processes that were add()ed, what is allocated for
///  - memfds and files on a tmpfs that they have open (st_blocks of /proc/PID/fd/N), deleted files too,
///  - SysV segments that they created and nobody removed (rss and swap in /proc/sysvipc/shm).
/// Each counts once, however many processes hold it. What is mapped is in RssShmem as well. Opens nothing and
/// changes nothing of the process. Not seen: pipe and socket buffers, other kernel objects behind
/// descriptors, tmpfs files that are closed.
class HeldMemory {
 public:
  void add(pid_t pid);

  /// nullopt when the descriptors of a process could not be read.
  [[nodiscard]] std::optional<std::uint64_t> bytes() const {
    return known_ ? std::optional(bytes_) : std::nullopt;
  }
  /// What could not be looked at, and why.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void add_descriptors(pid_t pid);
  void add_segments(pid_t pid);

  std::uint64_t bytes_ = 0;
  bool known_ = true;
  std::set<std::pair<std::uint64_t, std::uint64_t>> files_;  ///< device and inode of those that are counted
  std::vector<std::string> notes_;
};

/// Ids of the tmpfs mounts in the text of /proc/PID/mountinfo (man 5 proc_pid_mountinfo).
std::set<std::string> tmpfs_mounts(std::string_view mountinfo);

/// Bytes resident and swapped out of the segments that `creator` created, in the text of /proc/sysvipc/shm
/// (man 5 proc_sysvipc); nullopt when the header does not name the fields.
std::optional<std::uint64_t> created_segment_bytes(std::string_view sysvipc_shm, pid_t creator);

}  // namespace whomap
