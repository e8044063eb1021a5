// SPDX-License-Identifier: Apache-2.0
#include "core/stub/code_buffer.h"

#include <cstring>
#include <limits>

namespace whomap {

bool CodeBuffer::jump_to(std::uint64_t target) {
  constexpr std::size_t jump_size = 5;
  const auto distance = static_cast<std::int64_t>(target - (here() + jump_size));
  if (distance < std::numeric_limits<std::int32_t>::min() ||
      distance > std::numeric_limits<std::int32_t>::max())
    return false;
  const std::size_t at = bytes_.size();
  bytes_.resize(at + jump_size, 0xE9);
  write32(at + 1, static_cast<std::uint32_t>(distance));
  return true;
}

void CodeBuffer::write32(std::size_t offset, std::uint32_t value) {
  std::memcpy(bytes_.data() + offset, &value, sizeof value);
}

void CodeBuffer::write64(std::size_t offset, std::uint64_t value) {
  std::memcpy(bytes_.data() + offset, &value, sizeof value);
}

}  // namespace whomap
