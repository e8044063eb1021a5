// SPDX-License-Identifier: Apache-2.0
// Writing the protocol buffer wire format (https://protobuf.dev/programming-guides/encoding). The one message
// that is written here has six small types of numbers and strings: that is less code than a generated one,
// and needs neither protoc to build nor libprotobuf to run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whomap {

class ProtobufWriter {
 public:
  /// A 0 is left out, as it is the default of every field.
  void number(std::uint32_t field, std::uint64_t value) {
    if (value == 0) return;
    tag(field, 0);
    varint(value);
  }
  /// A string, or a message that was written before.
  void bytes(std::uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    text_ += value;
  }
  /// Repeated numbers, packed.
  void numbers(std::uint32_t field, const std::vector<std::uint64_t>& values) {
    ProtobufWriter packed;
    for (const std::uint64_t value : values) packed.varint(value);
    bytes(field, packed.text_);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void tag(std::uint32_t field, std::uint32_t wire_type) { varint(field << 3 | wire_type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(0x80 | (value & 0x7F));
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

}  // namespace whomap
