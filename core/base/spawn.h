// SPDX-License-Identifier: Apache-2.0
// Starting another program, and memory files to talk to it by.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

struct Spawn {
  std::vector<std::string> arguments;  ///< [0] is the program's path
  int output = -1;                     ///< becomes stdout and stderr
  std::vector<int> inherited;          ///< descriptors that keep their numbers
  std::vector<std::string> environment;
  ErrorCode missing = ErrorCode::kernel_feature;  ///< of the error when it cannot be executed
  std::string remedy;                             ///< for that error
};

/// Starts it in a session of its own, without a terminal, in "/", with no signal blocked. fork and exec with
/// an error pipe: a program that cannot be executed is an error here, not a dead child. The caller waits for
/// it.
Result<pid_t> spawn(Spawn what);

/// A memfd, close-on-exec.
Result<UniqueFd> memory_file(const char* name);
/// Everything in a memory file, from its start.
std::string content_of(int fd);

}  // namespace whomap
