// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/code_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace whomap {
namespace {

/// Fills `into` from link-time address `address`; false unless all of it is in the file.
bool read_code(const Image& image, std::uint64_t address, std::span<std::uint8_t> into) {
  if (into.empty()) return false;
  const auto offset = image.offset_of_vaddr(address);
  const auto last = image.offset_of_vaddr(address + into.size() - 1);
  if (!offset || !last || *last - *offset != into.size() - 1) return false;
  if (image.fd() < 0) {
    std::size_t size = 0;
    const char* const bytes = elf_rawfile(image.elf(), &size);  // the memory it was made from, no copy
    if (bytes == nullptr || *last >= size) return false;
    std::memcpy(into.data(), bytes + *offset, into.size());
    return true;
  }
  ssize_t got = 0;
  do got = ::pread(image.fd(), into.data(), into.size(), static_cast<off_t>(*offset));
  while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(into.size());
}

/// Does code[at..] hold FF /2 (call r/m64; Intel SDM volume 2, CALL and table 2-2) that is exactly
/// `code.size() - at` bytes long?
bool is_indirect_call(std::span<const std::uint8_t> code) {
  if (code.size() < 2 || code[0] != 0xFF) return false;
  const unsigned mode = code[1] >> 6, operation = code[1] >> 3 & 7U, base = code[1] & 7U;
  if (operation != 2) return false;
  std::size_t length = 2;
  if (mode != 3 && base == 4) {
    if (code.size() < 3) return false;
    ++length;
    if (mode == 0 && (code[2] & 7U) == 5) length += 4;
  }
  if (mode == 1)
    length += 1;
  else if (mode == 2 || (mode == 0 && base == 5))
    length += 4;
  return length == code.size();
}

}  // namespace

std::optional<std::uint64_t> direct_call_target(const Image& image, std::uint64_t address) {
  std::array<std::uint8_t, 5> code{};
  if (!read_code(image, address - code.size(), code) || code[0] != 0xE8) return std::nullopt;
  std::int32_t displacement = 0;
  std::memcpy(&displacement, &code[1], sizeof displacement);
  return address + static_cast<std::uint64_t>(std::int64_t{displacement});
}

bool follows_call(const Image& image, std::uint64_t address) {
  if (const auto target = direct_call_target(image, address)) {
    for (const Segment& segment : image.segments())
      if (segment.executable && *target >= segment.vaddr && *target - segment.vaddr < segment.memory_size)
        return true;
  }
  constexpr std::size_t longest = 7;  // FF, ModRM, SIB, disp32; a REX prefix before it changes nothing
  std::array<std::uint8_t, longest> code{};
  for (std::size_t length = 2; length <= longest; ++length) {
    const auto part = std::span(code).first(length);
    if (!read_code(image, address - length, part)) return false;
    if (is_indirect_call(part)) return true;
  }
  return false;
}

std::optional<std::uint64_t> direct_jump_target(const Image& image, std::uint64_t address) {
  constexpr std::array<std::uint8_t, 4> endbr64{0xF3, 0x0F, 0x1E, 0xFA};
  std::array<std::uint8_t, 4> first{};
  if (read_code(image, address, first) && first == endbr64) address += first.size();
  std::array<std::uint8_t, 5> code{};
  if (!read_code(image, address, code) || code[0] != 0xE9) return std::nullopt;
  std::int32_t displacement = 0;
  std::memcpy(&displacement, &code[1], sizeof displacement);
  return address + code.size() + static_cast<std::uint64_t>(std::int64_t{displacement});
}

bool sets_frame_pointer(const Image& image, std::uint64_t start, std::uint64_t size) {
  // Hand-written code (V8's builtins) may do a few things first. The second move is the other encoding.
  constexpr std::array<std::uint8_t, 4> push_move{0x55, 0x48, 0x89, 0xE5}, other{0x55, 0x48, 0x8B, 0xEC};
  std::array<std::uint8_t, 256> code{};
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(code.size(), size));
  if (!read_code(image, start, std::span(code).first(length))) return false;
  const auto end = code.begin() + static_cast<std::ptrdiff_t>(length);
  return std::search(code.begin(), end, push_move.begin(), push_move.end()) != end ||
         std::search(code.begin(), end, other.begin(), other.end()) != end;
}

bool is_signal_return_code(const Image& image, std::uint64_t address) {
  // GNU as and Go's assembler choose the same encoding; GDB's amd64-linux-tdep.c knows no other either.
  constexpr std::array<std::uint8_t, 9> expected{0x48, 0xC7, 0xC0, 0x0F, 0x00, 0x00, 0x00, 0x0F, 0x05};
  std::array<std::uint8_t, expected.size()> code{};
  return read_code(image, address, code) && code == expected;
}

}  // namespace whomap
