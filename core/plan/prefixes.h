// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace whomap {

/// How many prefixes before a syscall instruction are looked for.
inline constexpr std::uint64_t most_prefixes = 4;

/// Prefixes that the processor ignores before syscall: operand and address size, lock and repeat, segments,
/// REX (Intel SDM volume 2, 2.1.1 and 2.2.1).
inline bool is_ignored_prefix(std::uint8_t byte) {
  constexpr std::array<std::uint8_t, 11> legacy{0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e,
                                                0x36, 0x3e, 0x26, 0x64, 0x65};
  return (byte & 0xf0) == 0x40 || std::find(legacy.begin(), legacy.end(), byte) != legacy.end();
}

}  // namespace whomap
