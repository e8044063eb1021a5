// SPDX-License-Identifier: Apache-2.0
// All processes at a moment: who descends from whom, and who belongs to a process group.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace whomap {

struct ProcessEntry {
  pid_t pid = 0;
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  std::uint64_t start_time = 0;
  pid_t session = 0;
};

/// From the text of /proc/PID/stat (man 5 proc_pid_stat); nullopt when it is not of that shape.
std::optional<ProcessEntry> parse_process_entry(std::string_view stat_text);

/// From /proc. A process that comes or goes meanwhile may be in it or not; a kernel built without
/// CONFIG_PROC_CHILDREN has no cheaper way. Costs about 20 us a process.
std::vector<ProcessEntry> read_process_table();

/// Below `root`, children before grandchildren; `root` is not among them. `without` and what descends from it
/// is left out. An orphan has another parent and is no descendant any more.
std::vector<ProcessEntry> descendants_of(pid_t root, pid_t without, const std::vector<ProcessEntry>& table);

/// Is `variable` ("NAME=value") in the environment that the process was started with? It outlives any
/// orphaning; false when it cannot be read.
bool has_environment(pid_t pid, std::string_view variable);

/// Processes outside `tree` that may come from it all the same: init is their parent, they are younger than
/// `root`, and they are in its session or run its program. What a program does to become a daemon leaves no
/// better trace.
std::vector<ProcessEntry> likely_orphans(const ProcessEntry& root, const std::vector<ProcessEntry>& tree,
                                         const std::vector<ProcessEntry>& table);

}  // namespace whomap
