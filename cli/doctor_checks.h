// SPDX-License-Identifier: Apache-2.0
// What whomap doctor looks at: each finding says what is, and what to do where that is not as it should be.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace whomap::cli {

enum class Health {
  good,
  warning,  ///< a trace works, but something is to be known before
  problem,  ///< a trace does not work
};

struct Finding {
  std::string check;  ///< one word
  Health health = Health::good;
  std::string text, remedy;
  ExitStatus status = ExitStatus::done;  ///< that a trace would end with; problems only
};

/// The machine, whatever is to be traced. Starts GDB on nothing, and creates the folder for state files if it
/// is not there. Without `gdb_needed` a missing GDB is a warning.
std::vector<Finding> examine_machine(bool gdb_needed);

/// The process, which is neither stopped nor attached to. `gdb_needed` becomes false when the probe engine,
/// which needs none, can watch all its sites.
std::vector<Finding> examine_process(pid_t pid, bool& gdb_needed);

}  // namespace whomap::cli
