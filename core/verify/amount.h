// SPDX-License-Identifier: Apache-2.0
// Differences and rates of memory as people read them; computed as floating point, which may exceed 64 bits.
#pragma once

#include <string>

#include "core/verify/trend.h"

namespace whomap {

/// "+6.2 MiB", "-12 KiB", "0 B".
std::string change_text(double bytes);
/// The same without its sign.
std::string size_text(double bytes);
/// "+6.2 MiB/min".
std::string per_minute_text(double bytes_per_second);
/// "+12.3 MiB/min", with the interval when there is one: "+12.3 MiB/min [+11.9 MiB .. +12.8 MiB]".
std::string rate_text(const Trend& trend);
/// How fast a trend rose that was found to grow. The interval only where it is what proves that; where the
/// change does, the change over time: "+204 MiB/min on average".
std::string growth_rate_text(const Trend& trend);

}  // namespace whomap
