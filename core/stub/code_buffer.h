// SPDX-License-Identifier: Apache-2.0
// Bytes of position-dependent code being built for a known run-time address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace whomap {

class CodeBuffer {
 public:
  /// `address`: where the first byte will lie in the target.
  explicit CodeBuffer(std::uint64_t address) : address_(address) {}

  /// Run-time address of the next byte.
  [[nodiscard]] std::uint64_t here() const { return address_ + bytes_.size(); }
  void append(std::span<const std::uint8_t> code) { bytes_.insert(bytes_.end(), code.begin(), code.end()); }
  /// Appends jmp rel32 (Intel SDM, JMP: E9 cd, relative to its own end). False, and nothing appended, when
  /// `target` is out of its reach of 2 GiB.
  [[nodiscard]] bool jump_to(std::uint64_t target);
  /// Overwrites bytes that are there already, little-endian. `offset` is from the first byte; the value must
  /// lie within what was appended.
  void write8(std::size_t offset, std::uint8_t value) { bytes_[offset] = value; }
  void write32(std::size_t offset, std::uint32_t value);
  void write64(std::size_t offset, std::uint64_t value);
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::uint64_t address_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace whomap
