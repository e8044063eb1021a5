// SPDX-License-Identifier: Apache-2.0
// The command line of whomap verify, checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/verify/effect.h"
#include "core/verify/judge.h"
#include "core/verify/session.h"

namespace whomap::cli {

struct VerifyOptions {
  CommonOptions common;
  std::optional<pid_t> pid;
  std::vector<std::string> command;  ///< after "--"; empty with a pid
  std::string control;               ///< shell command of the unfixed variant; may be empty
  std::string ready;                 ///< shell command that succeeds when a started program can take load
  double ready_timeout_seconds = 60;
  bool tree = false;
  SessionOptions session;
  JudgeLimits limits;
  std::vector<EffectPattern> effects;
  std::string save, baseline, output = "-";
  bool json = false;
};

/// Empty when the command should go on; else the status to leave with (help or error was printed).
std::optional<ExitStatus> parse_verify_options(const std::vector<std::string>& arguments,
                                               VerifyOptions& options);

}  // namespace whomap::cli
