// SPDX-License-Identifier: Apache-2.0
// Has the file of a mapping been deleted? The kernel adds " (deleted)" to its name then, and a file may be
// named so.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "core/process/vma.h"

namespace whomap {

enum class Deleted {
  no,
  yes,
  unknown,  ///< the name ends in " (deleted)", and the file could not be asked
};

/// What the line alone tells; nullopt: no file is mapped.
std::optional<Deleted> deleted_by_name(const Vma& vma);

/// Asks the file behind a mapping of process `pid` where the name leaves it open: no link to it is left, or
/// the name with its ending leads to it. Needs CAP_CHECKPOINT_RESTORE for /proc/PID/map_files; without it
/// the name is followed from the root of the process.
class DeletedFiles {
 public:
  explicit DeletedFiles(pid_t pid) : pid_(pid) {}
  /// What was found is kept as long as this object: a file can be deleted at any time.
  std::optional<Deleted> look(const Vma& vma);

 private:
  [[nodiscard]] Deleted ask(const Vma& vma) const;

  pid_t pid_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>, Deleted> known_;
};

}  // namespace whomap
