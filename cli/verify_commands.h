// SPDX-License-Identifier: Apache-2.0
// The shell command lines of whomap verify, looked at before minutes are spent on them.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"

namespace whomap::cli {

/// A simple command as one that takes the shell's place: dash, unlike bash, stays in between and would be the
/// process that is measured. A command line with more to it than words is left as it is.
std::string replacing_the_shell(const std::string& command);

/// A usage error when /bin/sh does not understand the command line that `option` was given, or when it is a
/// simple one whose program is not there. Nothing of it is run.
std::optional<Error> command_obstacle(const std::string& option, const std::string& command);

}  // namespace whomap::cli
