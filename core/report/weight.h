// SPDX-License-Identifier: Apache-2.0
// What a stack weighs in the shapes for viewers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/match/match.h"

namespace whomap {

enum class Weight {
  growth,  ///< live bytes in newly mapped addresses
  live,    ///< mapped by the stack and not unmapped
};

inline std::uint64_t weight_of(const StackAnswer& row, Weight weight) {
  return weight == Weight::growth ? row.growth_bytes : row.live_bytes;
}

/// A frame as viewers name it, without control characters.
std::string viewer_name(const Frame& frame);

/// The name of the outermost entry of a stack that ends early: viewers join stacks from outside, and would
/// else show it as if it had been called from nowhere.
inline constexpr const char* truncated_name = "[truncated]";

}  // namespace whomap
