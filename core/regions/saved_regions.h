// SPDX-License-Identifier: Apache-2.0
// Regions that somebody saved, in any of the forms in which they come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/regions/snapshot.h"

namespace whomap {

/// Saved /proc/PID/maps or smaps, one after the other in one text: a VMA that lies below the one before it
/// begins the next snapshot. Times stay unknown, and totals where there are no sizes (maps) to add up.
std::vector<Snapshot> snapshots_from_text(std::string_view text);

}  // namespace whomap
