// SPDX-License-Identifier: Apache-2.0
#include "core/capture/frame_chain.h"

#include <cstring>

namespace whomap {

std::optional<std::uint64_t> frame_on_other_stack(std::uint64_t frame_pointer, std::uint64_t address,
                                                  std::span<const std::byte> stack) {
  constexpr std::uint64_t word = sizeof(std::uint64_t);
  constexpr std::uint64_t user_end = std::uint64_t{1} << 47;  // Documentation/arch/x86/x86_64/mm.rst
  bool in_chain = false;
  for (std::uint64_t at = frame_pointer;; in_chain = true) {
    if (at % word != 0 || at < word || at >= user_end) return std::nullopt;
    const std::uint64_t offset = at - address;  // wraps to a large number below the copy
    if (offset > stack.size() || stack.size() - offset < 2 * word)
      return in_chain ? std::optional(at) : std::nullopt;
    std::uint64_t next = 0;
    std::memcpy(&next, stack.data() + offset, sizeof next);
    if (next >= address && next <= at) return std::nullopt;
    at = next;
  }
}

}  // namespace whomap
