// SPDX-License-Identifier: Apache-2.0
#include "core/stub/move_code.h"

#include <array>
#include <cstring>
#include <limits>

#include <Zydis/Zydis.h>
#include <fmt/format.h>

namespace whomap {
namespace {

tl::unexpected<Error> immovable(std::uint64_t address, const char* why) {
  return fail(ErrorCode::unsupported_target, fmt::format("the instruction at {:#x} {}", address, why));
}

}  // namespace

Result<std::vector<std::uint8_t>> move_code(std::span<const std::uint8_t> code, std::uint64_t from,
                                            std::uint64_t to) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  std::vector<std::uint8_t> moved(code.begin(), code.end());
  for (std::size_t at = 0; at < code.size();) {
    ZydisDecodedInstruction instruction;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    if (ZYAN_FAILED(
            ZydisDecoderDecodeFull(&decoder, &code[at], code.size() - at, &instruction, operands.data())))
      return immovable(from + at, "could not be decoded");
    const bool relative = (instruction.attributes & ZYDIS_ATTRIB_IS_RELATIVE) != 0;
    if (instruction.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE || instruction.raw.imm[0].is_relative != 0)
      return immovable(from + at, "is a jump or a call");
    if (relative) {
      // Only rip + disp32 is left (Intel SDM volume 2, 2.2.1.6).
      if (instruction.raw.disp.size != 32) return immovable(from + at, "depends on its place");
      const std::int64_t adjusted = instruction.raw.disp.value + static_cast<std::int64_t>(from - to);
      if (adjusted < std::numeric_limits<std::int32_t>::min() ||
          adjusted > std::numeric_limits<std::int32_t>::max())
        return immovable(from + at, "uses memory that is out of reach from the stub");
      const auto field = static_cast<std::int32_t>(adjusted);
      std::memcpy(&moved[at + instruction.raw.disp.offset], &field, sizeof field);
    }
    at += instruction.length;
  }
  return moved;
}

}  // namespace whomap
