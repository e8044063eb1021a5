// SPDX-License-Identifier: Apache-2.0
// The address ranges of .eh_frame: what is left of the function boundaries in a stripped file.
#pragma once

#include <cstdint>
#include <vector>

#include "core/elf/image.h"

namespace whomap {

/// Link-time addresses of the code that one FDE (frame description entry) describes.
struct FrameRange {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

/// All FDEs of the image's .eh_frame, sorted by start; empty when it has none. The whole section is walked
/// (Linux Standard Base Core 5.0, 10.6.1), because static binaries often have no .eh_frame_hdr. A damaged
/// entry ends the walk; what was read before it is returned.
std::vector<FrameRange> read_frame_ranges(const Image& image);

}  // namespace whomap
