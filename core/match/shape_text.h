// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/regions/growth_shape.h"

namespace whomap {

/// "grows steadily, +7.1 MiB/min (95 %: +6.9 MiB to +7.3 MiB)", "grows in doubling steps (256 MiB, ...)".
std::string shape_text(const GrowthShape& shape);

/// The 95 % interval of a slope, per minute.
std::string interval_text(const Slope& slope);

/// "+6.2 MiB" of a size that need not be whole.
std::string signed_bytes_of(double bytes);

}  // namespace whomap
