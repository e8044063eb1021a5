// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/regions/snapshot.h"

namespace whomap::cli {

/// The snapshots of a file of saved regions, in order, at least one. Errors: input_unreadable; input_kind,
/// saying what the file looks like; input_damaged.
Result<std::vector<Snapshot>> load_regions(const std::string& path);

}  // namespace whomap::cli
