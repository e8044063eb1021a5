// SPDX-License-Identifier: Apache-2.0
// Where functions begin and end according to .eh_frame: the only function boundaries that a stripped
// file keeps.
#pragma once

#include <vector>

#include "core/elf/image.h"
#include "core/process/vma.h"

namespace whomap {

/// The link-time address ranges of all FDEs (frame description entries), sorted by start; empty when
/// the file has no .eh_frame. One function may have several (a cold part); none spans two functions.
/// Entries that cannot be decoded end the reading: what follows them is unknown.
std::vector<AddressRange> fde_ranges(const Image& image);

}  // namespace whomap
