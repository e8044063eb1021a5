// SPDX-License-Identifier: Apache-2.0
#include "core/verify/amount.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "core/match/quantity.h"

namespace whomap {

std::string change_text(double bytes) {
  constexpr double most = 9.2e18;  // what fits int64_t
  return signed_bytes_text(static_cast<std::int64_t>(std::clamp(bytes, -most, most)));
}

std::string size_text(double bytes) {
  return change_text(std::abs(bytes)).substr(bytes == 0 ? 0 : 1);
}

std::string per_minute_text(double bytes_per_second) {
  return change_text(bytes_per_second * 60) + "/min";
}

std::string rate_text(const Trend& trend) {
  std::string text = per_minute_text(trend.rate());
  if (trend.slope)
    text +=
        fmt::format(" [{} .. {}]", change_text(trend.slope->low * 60), change_text(trend.slope->high * 60));
  return text;
}

std::string growth_rate_text(const Trend& trend) {
  if (trend.certainly_rises() || trend.window_seconds <= 0) return rate_text(trend);
  return per_minute_text(trend.change / trend.window_seconds) + " on average";
}

}  // namespace whomap
