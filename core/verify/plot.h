// SPDX-License-Identifier: Apache-2.0
// The anonymous memory of a run over time, in characters.
#pragma once

#include <string>

#include "core/verify/run.h"

namespace whomap {

struct PlotSize {
  std::size_t width = 80;  ///< columns, with the axis; at least 40
  std::size_t height = 8;  ///< lines of the plot itself, at least 3
};

/// RssAnon + VmSwap: "o" for a point, "." for a reading, ":" where the middle point divides warm-up from what
/// is judged. The vertical axis spans `least_span` bytes or more, so that noise far below the limit looks
/// flat. ASCII only. Empty when there are no two measurements to draw.
std::string plot(const VerifyRun& run, double least_span, const PlotSize& size);

}  // namespace whomap
