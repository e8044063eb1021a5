// SPDX-License-Identifier: Apache-2.0
// Folded stacks, the input of flamegraph.pl and of most flame graph viewers.
#include <algorithm>

#include <fmt/format.h>

#include "core/match/culprit.h"
#include "core/report/report.h"

namespace whomap {

std::string viewer_name(const Frame& frame) {
  return printable(frame_name(frame));
}

std::string to_folded(const Answer& answer, Weight weight) {
  std::string text;
  for (const StackAnswer& row : answer.stacks) {
    const std::uint64_t bytes = weight_of(row, weight);
    if (bytes == 0) continue;
    std::string line;
    if (row.stack.truncated || row.stack.frames.empty()) line = truncated_name;
    for (auto frame = row.stack.frames.rbegin(); frame != row.stack.frames.rend(); ++frame) {
      std::string name = viewer_name(*frame);
      // ';' separates frames, and C++ and Rust names may hold it.
      std::replace(name.begin(), name.end(), ';', ':');
      line += fmt::format("{}{}", line.empty() ? "" : ";", name);
    }
    text += fmt::format("{} {}\n", line, bytes);
  }
  return text;
}

}  // namespace whomap
