// SPDX-License-Identifier: Apache-2.0
// Function boundaries and names that the Go linker leaves in every binary, stripped or not.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/elf/image.h"

namespace whomap {

struct GoFunction {
  std::uint64_t start = 0;  ///< link-time address
  std::uint64_t end = 0;    ///< start of the next: padding is part of it
  std::string_view name;    ///< lives as long as the image
};

/// The table .gopclntab of Go 1.16 and later (go/src/debug/gosym/pclntab.go), ascending; empty for other
/// images and for tables of another layout.
std::vector<GoFunction> read_go_functions(const Image& image);

}  // namespace whomap
