// SPDX-License-Identifier: Apache-2.0
// The result for people, and the line for a CI log.
#pragma once

#include <string>

#include "core/verify/outcome.h"

namespace whomap {

struct VerifyTextOptions {
  bool color = false;
  bool plot = false;
  std::size_t width = 80;
};

std::string to_text(const VerifyInput& input, const VerifyOutcome& outcome, const JudgeLimits& limits,
                    const VerifyTextOptions& options);

/// "whomap verify: not-fixed: anonymous memory grew by 204 MiB ...; whomap trace -p PID shows ...": one line,
/// with a newline at its end, whatever names are in it.
std::string ci_line(const Verdict& verdict, bool color);

/// "RssAnon 902 MiB, RssFile 60 MiB, ...": what one point measured.
std::string point_text(const Measurement& point, bool exercised);

}  // namespace whomap
