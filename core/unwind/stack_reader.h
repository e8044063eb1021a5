// SPDX-License-Identifier: Apache-2.0
// Bounded reads from a stack copy: the only target memory that the unwinder sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/capture/call_event.h"

namespace whomap {

class StackReader {
 public:
  explicit StackReader(const StackCopy& stack)
      : start_(stack.address), size_(stack.bytes.size()), bytes_(stack.bytes.data()) {}
  StackReader(std::uint64_t start, const std::vector<std::byte>& bytes)
      : start_(start), size_(bytes.size()), bytes_(bytes.data()) {}

  [[nodiscard]] std::uint64_t start() const { return start_; }
  [[nodiscard]] std::uint64_t end() const { return start_ + size_; }

  /// Reads `size` (1 to 8) bytes as a little-endian number. False when any of them is outside.
  [[nodiscard]] bool read(std::uint64_t address, std::size_t size, std::uint64_t& value) const {
    const std::uint64_t at = address - start_;  // wraps to a large number below start
    if (at > size_ || size_ - at < size) return false;
    value = 0;
    std::memcpy(&value, bytes_ + at, size);
    return true;
  }
  [[nodiscard]] bool read(std::uint64_t address, std::uint64_t& value) const {
    return read(address, sizeof value, value);
  }

 private:
  std::uint64_t start_;
  std::uint64_t size_;
  const std::byte* bytes_;
};

}  // namespace whomap
