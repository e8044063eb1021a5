// SPDX-License-Identifier: Apache-2.0
// Instructions that run somewhere else than where they were linked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"

namespace whomap {

/// `code`, whole x86-64 instructions at `from`, rewritten so that it does the same at `to`: displacements
/// relative to rip are adjusted. Error unsupported_target for an instruction that cannot be moved: one with a
/// relative target (jump, call), or whose operand is out of reach from there.
Result<std::vector<std::uint8_t>> move_code(std::span<const std::uint8_t> code, std::uint64_t from,
                                            std::uint64_t to);

}  // namespace whomap
