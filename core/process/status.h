// SPDX-License-Identifier: Apache-2.0
// /proc/PID/status: state, owner, and memory split by kind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace whomap {

/// The fields whomap decides on (man 5 proc_pid_status); sizes in bytes. A field the kernel did not
/// print is nullopt, never 0: kernel threads have no Vm lines, old kernels no Rss split.
struct ProcessStatus {
  std::string name;
  char state = '?';  ///< R S D T t Z X I
  std::optional<pid_t> tgid, ppid, tracer_pid;
  std::optional<uid_t> real_uid, effective_uid;
  std::optional<std::uint64_t> vm_rss, rss_anon, rss_file, rss_shmem, vm_swap, vm_pte, vm_data;
  std::optional<std::uint64_t> threads;
  std::optional<std::uint64_t> effective_capabilities;
  std::optional<int> seccomp;                 ///< 0 none, 1 strict, 2 filter
  std::map<std::string, std::string> fields;  ///< every line, by its name, value as printed
};

ProcessStatus parse_status(std::string_view text);
Result<ProcessStatus> read_status(pid_t pid);

}  // namespace whomap
