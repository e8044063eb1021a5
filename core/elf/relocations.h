// SPDX-License-Identifier: Apache-2.0
// The pointers that the dynamic linker fills in for calls to other modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/elf/image.h"

namespace whomap {

/// A word in the GOT or another relocated data section that will hold the address of a function.
struct ImportSlot {
  std::uint64_t vaddr = 0;    ///< link-time address of the word
  std::string symbol;         ///< empty for a relative relocation
  bool defined_here = false;  ///< the image itself defines the symbol
};

/// All slots with a JUMP_SLOT, GLOB_DAT or absolute relocation by symbol (x86-64 and AArch64 names; the psABI
/// supplements give their numbers).
std::vector<ImportSlot> read_import_slots(const Image& image);

}  // namespace whomap
