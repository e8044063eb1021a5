// SPDX-License-Identifier: Apache-2.0
// Where in the target's address space stubs can lie: within reach of a jump, out of everybody's way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/process/vma.h"

namespace whomap {

/// Sites that one piece of memory can serve.
struct Neighbourhood {
  std::uint64_t place = 0;          ///< page-aligned start of free memory
  std::vector<std::size_t> served;  ///< indices into `sites`
};

struct Placement {
  std::vector<Neighbourhood> neighbourhoods;
  std::vector<std::size_t> unreachable;  ///< no free memory within reach of these
};

/// Finds places of `size` bytes (a multiple of the page size) within 2 GiB of all of `sites` (run-time
/// addresses). A place is never where a heap or a stack would grow into it: not within 1 GiB above [heap] or
/// the program, and not within 1 GiB below a mapping unless 64 MiB and more stay free in between (a GROWSDOWN
/// mapping cannot be told from others in maps). `vmas` ascending.
Placement find_places(const std::vector<Vma>& vmas, std::span<const std::uint64_t> sites, std::uint64_t size,
                      std::uint64_t page_size);

}  // namespace whomap
