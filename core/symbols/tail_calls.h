// SPDX-License-Identifier: Apache-2.0
// Functions that are on no stack because they ended in a jump to the next one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/symbols/image_symbols.h"

namespace whomap {

/// `caller` called at `return_address`, and the code that runs is at `address` in `callee`. When the
/// function that the call names is another one, and there are ways of tail calls from it to the running
/// function, the result is what all of them have in common: the addresses after the jumps, in `callee`,
/// innermost first. Empty when there is nothing to infer or any call on the way is not known.
std::vector<std::uint64_t> tail_calls_between(ImageSymbols& caller, std::uint64_t return_address,
                                              ImageSymbols& callee, std::uint64_t address);

}  // namespace whomap
