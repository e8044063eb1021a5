// SPDX-License-Identifier: Apache-2.0
// The answer in the shapes that people and programs read.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/match/match.h"

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

/// One line per stack with growth: frames outermost first joined by ';', a space, and growth_bytes.
std::string to_folded(const Answer& answer);

}  // namespace whomap
