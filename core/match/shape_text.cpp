// SPDX-License-Identifier: Apache-2.0
#include "core/match/shape_text.h"

#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"

namespace whomap {
namespace {

constexpr double per_minute = 60;

std::string bytes_of(double bytes) {
  return bytes_text(whole_bytes(std::abs(bytes)));
}

}  // namespace

std::string signed_bytes_of(double bytes) {
  const std::string text = bytes_of(bytes);
  return text == "0 B" ? text : (bytes < 0 ? "-" : "+") + text;
}

std::string interval_text(const Slope& slope) {
  return fmt::format("95 %: {} to {}", signed_bytes_of(slope.low * per_minute),
                     signed_bytes_of(slope.high * per_minute));
}

std::string shape_text(const GrowthShape& shape) {
  const std::string rate = signed_bytes_of(shape.rate() * per_minute) + "/min";
  switch (shape.pattern) {
    case GrowthPattern::unknown:
      return fmt::format("{} in {}, too short for a trend", signed_bytes_of(shape.change),
                         seconds_text(shape.seconds));
    case GrowthPattern::flat: return "flat";
    case GrowthPattern::steady:
      return fmt::format("grows steadily, {}{}", rate,
                         shape.slope ? " (" + interval_text(*shape.slope) + ")" : "");
    case GrowthPattern::steps:
      return fmt::format("grows in steps: {} in {}, {} on average", signed_bytes_of(shape.change),
                         count_text(shape.steps.size(), "jump"), rate);
    case GrowthPattern::doubling: {
      std::string sizes;
      for (const GrowthStep& step : shape.steps) sizes += (sizes.empty() ? "" : ", ") + bytes_of(step.bytes);
      return fmt::format(
          "grows in doubling steps ({}), as an arena does that extends itself; the next would be {}", sizes,
          bytes_of(2 * shape.steps.back().bytes));
    }
    case GrowthPattern::plateau:
      return fmt::format("grew by {} and has been flat for {}", bytes_of(shape.change),
                         seconds_text(shape.quiet_seconds));
    case GrowthPattern::falling:
      return fmt::format("falls, {} in {}", signed_bytes_of(shape.change), seconds_text(shape.seconds));
    case GrowthPattern::unclear:
      return fmt::format("{} in {}, without a clear trend{}", signed_bytes_of(shape.change),
                         seconds_text(shape.seconds),
                         shape.slope ? " (" + interval_text(*shape.slope) + ")" : "");
  }
  return {};
}

}  // namespace whomap
