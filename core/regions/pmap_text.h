// SPDX-License-Identifier: Apache-2.0
// The output of pmap with column names: -X, -XX and -x of procps.
#pragma once

#include <string_view>

#include "core/regions/snapshot.h"

namespace whomap {

/// One snapshot for each time that pmap was run into the same file; times and totals stay unknown. Lines of
/// no known shape go to `unparsed` of the snapshot they stand in. Sizes are in KiB there, bytes here.
std::vector<Snapshot> snapshots_from_pmap(std::string_view text);

}  // namespace whomap
