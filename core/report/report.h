// SPDX-License-Identifier: Apache-2.0
// The answer in the shapes that people and programs read.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/match/match.h"
#include "core/report/weight.h"

namespace whomap {

/// The whomap-report format, version 1 (documented in core/README.md).
nlohmann::ordered_json to_json(const Answer& answer);
/// The same as text, indented, ending in a newline.
std::string to_json_text(const Answer& answer);

struct TextOptions {
  bool color = false;
  int width = 80;           ///< columns; less than 40 is taken as 40
  std::size_t stacks = 5;   ///< how many stacks are shown whole
  std::size_t regions = 8;  ///< how many grown regions are shown
};

std::string to_text(const Answer& answer, const TextOptions& options);

/// One line per stack that weighs something: frames outermost first joined by ';', a space, and the bytes.
std::string to_folded(const Answer& answer, Weight weight);

/// For https://www.speedscope.app; both weights are in it, `weight` is shown first.
std::string to_speedscope(const Answer& answer, Weight weight);

/// For `go tool pprof` and its relatives: gzip, not text. Both weights and the number of calls are in it,
/// `weight` is the one shown by default. Errors: output_unwritable when zlib fails.
Result<std::string> to_pprof(const Answer& answer, Weight weight);

/// One file for a browser, with everything in it: the report, and its stacks as a flame graph. It loads
/// nothing.
std::string to_html(const Answer& answer, Weight weight);

}  // namespace whomap
