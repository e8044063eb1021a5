// SPDX-License-Identifier: Apache-2.0
// The answer in the shapes that people and programs read.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/match/match.h"

namespace whomap {

/// The whomap-report format, version 1 (documented in core/README.md).
nlohmann::ordered_json to_json(const Answer& answer);

struct TextOptions {
  bool color = false;
  int width = 80;           ///< columns
  std::size_t stacks = 5;   ///< how many stacks are shown whole
};

std::string to_text(const Answer& answer, const TextOptions& options);

/// One line per stack: frames outermost first joined by ';', a space, and growth_bytes.
std::string to_folded(const Answer& answer);

}  // namespace whomap
