// SPDX-License-Identifier: Apache-2.0
// What a verification recorded: measurements of one process (or a process tree) over time, and the
// load that was put on it meanwhile. Everything the judge knows is in here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/process/target.h"

namespace whomap {

/// Bytes, except where said; nullopt is "not known", never 0.
struct MemoryUse {
  std::optional<std::uint64_t> rss, rss_anon, rss_file, rss_shmem, swap, page_tables;  ///< /proc/PID/status
  std::optional<std::uint64_t>
      lazy_free;  ///< smaps_rollup: given back with MADV_FREE, still counted in RssAnon
  std::optional<std::uint64_t> mappings;  ///< count
  std::optional<std::uint64_t> threads;   ///< count
  /// In memfds and tmpfs files that it has open and SysV segments that it created, mapped or not; points
  /// only.
  std::optional<std::uint64_t> held{};
};

/// A process of a measured tree, below its root.
struct TreeMember {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  std::optional<std::uint64_t> rss_anon;
  bool operator==(const TreeMember&) const = default;
};

/// One look at the process. The spaced ones are the points of the verdict and have everything; between
/// them come light ones from /proc/PID/status alone, which take no lock of the process and show how noisy
/// the points are.
struct Measurement {
  bool point = false;
  double seconds = 0;            ///< since the first measurement
  std::uint64_t start_time = 0;  ///< of the process, so that recorded data shows a restart too
  MemoryUse memory;
  std::optional<double> cpu_seconds;           ///< used so far by all its threads, exited ones included
  std::uint64_t succeeded = 0;                 ///< exercises until then
  std::uint64_t failed = 0;                    ///< exercises until then
  std::uint64_t processes = 1;                 ///< that the sums are of
  std::optional<std::uint64_t> most_mappings;  ///< of one process; points only
  std::vector<TreeMember> members;             ///< points of a tree only
};

/// The load, as it was asked for and as it went.
struct ExerciseRecord {
  std::string command;      ///< for /bin/sh -c; empty: the load comes from elsewhere
  std::uint64_t count = 0;  ///< runs asked for
  std::uint64_t operations_per_run = 1;
  std::uint64_t succeeded = 0;  ///< runs
  std::uint64_t failed = 0;     ///< runs, the timed out ones among them
  std::uint64_t timed_out = 0;
  std::string first_failure;  ///< how the first one failed, with the end of what it printed
};

enum class RunEnding {
  complete,
  interrupted,
  target_ended,
  target_replaced,
  unreadable,
  exercise_failed,  ///< each time from the start on, and so often that it was given up
};

struct VerifyRun {
  TargetIdentity target;
  std::string command;  ///< when whomap started the process; else empty
  bool tree = false;
  std::uint64_t samples = 3;
  double interval_seconds = 30;
  ExerciseRecord exercise;
  std::vector<Measurement> measurements;       ///< in the order of time
  std::optional<std::uint64_t> max_map_count;  ///< vm.max_map_count: mappings that one process may have
  RunEnding ending = RunEnding::complete;
  std::string ending_text;         ///< one line, empty when complete
  std::vector<std::string> notes;  ///< what was not measured and why
};

}  // namespace whomap
