// SPDX-License-Identifier: Apache-2.0
// The few AArch64 instructions that carry a system call's number, or control, from place to place.
// Encodings: Arm Architecture Reference Manual for A-profile, C4.1 and C6.2; registers: AAPCS64, 6.1.1.
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/plan/instruction.h"

namespace whomap {
namespace {

constexpr RegisterNumber x8 = 8, x29 = 29, x30 = 30, stack = 31;

constexpr std::uint32_t bit(unsigned number) {
  return std::uint32_t{1} << number;
}

constexpr std::uint32_t bits(std::uint32_t word, unsigned low, unsigned count) {
  return word >> low & ((std::uint32_t{1} << count) - 1);
}

constexpr std::int64_t sign_extended(std::uint64_t value, unsigned width) {
  const unsigned dropped = 64 - width;
  return static_cast<std::int64_t>(value << dropped) >> dropped;
}

std::uint64_t displaced(std::uint64_t address, std::uint32_t words, unsigned width) {
  return address + static_cast<std::uint64_t>(sign_extended(words, width) * 4);
}

bool decode_branch(std::uint32_t word, Instruction& into) {
  if ((word & 0x7C000000U) == 0x14000000U) {  // B, BL
    into.flow = (word >> 31) != 0 ? Flow::call : Flow::jump;
    into.target = displaced(into.address, bits(word, 0, 26), 26);
  } else if ((word & 0xFF000000U) == 0x54000000U ||
             (word & 0x7E000000U) == 0x34000000U) {  // B.cond, CBZ, CBNZ
    into.flow = Flow::branch;
    into.target = displaced(into.address, bits(word, 5, 19), 19);
  } else if ((word & 0x7E000000U) == 0x36000000U) {  // TBZ, TBNZ
    into.flow = Flow::branch;
    into.target = displaced(into.address, bits(word, 5, 14), 14);
  } else if ((word & 0xFE000000U) == 0xD6000000U) {  // BR, BLR, RET and their authenticated forms
    const std::uint32_t operation = bits(word, 21, 4) & 7U;
    into.flow = operation == 0 ? Flow::indirect_jump : operation == 1 ? Flow::indirect_call : Flow::end;
  } else if ((word & 0xFFE0001FU) == 0xD4000001U) {  // SVC
    into.flow = Flow::system_call;
    into.clobbered = bit(0);
  } else if ((word & 0xFFE0001FU) == 0xD4200000U || (word & 0xFFFF0000U) == 0) {  // BRK, UDF
    into.flow = Flow::end;
  } else {
    return false;
  }
  return true;
}

/// MOVZ, MOVN, MOVK.
bool decode_wide_immediate(std::uint32_t word, Instruction& into) {
  if ((word & 0x1F800000U) != 0x12800000U) return false;
  const bool wide = (word >> 31) != 0;
  const unsigned shift = 16 * bits(word, 21, 2);
  const std::uint64_t value = std::uint64_t{bits(word, 5, 16)} << shift;
  into.destination = static_cast<RegisterNumber>(bits(word, 0, 5));
  switch (bits(word, 29, 2)) {
    case 0:
      into.effect = Effect::constant;
      into.immediate = static_cast<std::int64_t>(wide ? ~value : ~value & 0xFFFFFFFFU);
      break;
    case 2:
      into.effect = Effect::constant;
      into.immediate = static_cast<std::int64_t>(value);
      break;
    case 3:
      into.effect = Effect::insert;
      into.immediate = static_cast<std::int64_t>(bits(word, 5, 16));
      into.shift = static_cast<std::uint8_t>(shift);
      into.width = 2;
      break;
    default: return false;
  }
  return true;
}

/// The bit pattern of a logical immediate: a rotated run of ones, repeated (Arm ARM, DecodeBitMasks).
std::optional<std::uint64_t> logical_immediate(std::uint32_t word) {
  const std::uint32_t inverted = bits(word, 22, 1) << 6 | (~bits(word, 10, 6) & 0x3FU);
  if (inverted == 0) return std::nullopt;
  const unsigned log_size = 31U - static_cast<unsigned>(std::countl_zero(inverted));
  if (log_size < 1) return std::nullopt;
  const unsigned size = 1U << log_size;
  const unsigned ones = (bits(word, 10, 6) & (size - 1)) + 1;
  const unsigned rotation = bits(word, 16, 6) & (size - 1);
  if (ones == size) return std::nullopt;
  const std::uint64_t element = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
  const std::uint64_t run = (std::uint64_t{1} << ones) - 1;
  std::uint64_t pattern = rotation == 0 ? run : (run >> rotation | run << (size - rotation)) & element;
  for (unsigned width = size; width < 64; width *= 2) pattern |= pattern << width;
  return pattern;
}

/// ORR (register) from xzr is MOV; ADD and SUB (immediate) with sp is MOV to or from sp.
bool decode_move(std::uint32_t word, Instruction& into) {
  const std::uint8_t width = (word >> 31) != 0 ? 8 : 4;
  const auto to = static_cast<RegisterNumber>(bits(word, 0, 5));
  if ((word & 0x7FE0FFE0U) == 0x2A0003E0U) {
    if (to == 31) return false;
    const auto from = static_cast<RegisterNumber>(bits(word, 16, 5));
    into.effect = from == 31 ? Effect::constant : Effect::copy;  // 31 is xzr here
    into.destination = to;
    into.source = from == 31 ? no_register : from;
    into.width = width;
    return true;
  }
  if ((word & 0x7F8003E0U) == 0x320003E0U) {  // ORR (immediate) from xzr
    const auto pattern = logical_immediate(word);
    if (!pattern) return false;
    into.effect = Effect::constant;
    into.destination = to;
    into.immediate = static_cast<std::int64_t>(width == 8 ? *pattern : *pattern & 0xFFFFFFFFU);
    return true;
  }
  if ((word & 0x5F800000U) == 0x11000000U) {  // without setting flags: there 31 is sp
    const std::int64_t value = static_cast<std::int64_t>(bits(word, 10, 12))
                               << (bits(word, 22, 1) != 0 ? 12 : 0);
    if ((word >> 29 & 1U) != 0) return false;
    into.effect = Effect::add;
    into.destination = to;
    into.source = static_cast<RegisterNumber>(bits(word, 5, 5));
    into.immediate = (word >> 30 & 1U) != 0 ? -value : value;
    into.width = width;
    return true;
  }
  if ((word & 0xFFFFFC00U) == 0x93407C00U) {  // SXTW
    into.effect = Effect::copy;
    into.destination = to;
    into.source = static_cast<RegisterNumber>(bits(word, 5, 5));
    into.width = 4;
    into.sign_extended = true;
    return to != 31;
  }
  return false;
}

/// LDR and STR of a general register with an unsigned offset; with other addressing what is loaded is
/// unknown.
bool decode_memory(std::uint32_t word, Instruction& into) {
  const std::uint32_t size = bits(word, 30, 2);
  const auto value = static_cast<RegisterNumber>(bits(word, 0, 5));
  const auto base = static_cast<RegisterNumber>(bits(word, 5, 5));
  if ((word & 0x3F000000U) == 0x39000000U && size >= 2) {
    const std::uint32_t operation = bits(word, 22, 2);
    if (operation > 1) return false;
    into.width = size == 3 ? 8 : 4;
    into.immediate = static_cast<std::int64_t>(bits(word, 10, 12)) * into.width;
    into.effect = operation == 1 ? Effect::load : Effect::store;
    into.destination = operation == 1 ? value : base;
    into.source = operation == 1 ? base : value;
    if (operation == 0 && value == 31) {
      into.effect = Effect::store_constant;
      into.stored = 0;
    }
    return !(operation == 1 && value == 31);
  }
  return false;
}

Instruction decode(std::span<const std::uint8_t> bytes, std::uint64_t address) {
  Instruction into;
  into.address = address;
  if (bytes.size() < 4) return into;
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  into.length = 4;
  if (decode_branch(word, into) || decode_wide_immediate(word, into) || decode_move(word, into) ||
      decode_memory(word, into))
    return into;
  const Instruction plain{.address = address, .length = 4};
  into = plain;
  if (word == 0xD503201FU) {  // NOP
    into.padding = true;
    return into;
  }
  // Loads, stores and data processing name what they write in bits 0-4; pairs also in 10-14, and writing back
  // the base in 5-9. That some of these only read them costs nothing but knowledge.
  into.clobbered = bit(bits(word, 0, 5));
  const bool memory = (word & 0x0A000000U) == 0x08000000U;
  if (memory) {
    const bool load = bits(word, 22, 1) != 0;
    const bool pair = (word & 0x3A000000U) == 0x28000000U;
    if (pair) into.clobbered |= bit(bits(word, 10, 5));
    if (!load) into.clobbered = 0;
    const bool written_back = (pair && bits(word, 23, 1) != 0) || ((word & 0x3B200400U) == 0x38000400U) ||
                              (pair && bits(word, 24, 1) == 0);
    if (written_back) into.clobbered |= bit(bits(word, 5, 5));
    if (!load) {
      into.effect = Effect::store_anywhere;
      into.destination = static_cast<RegisterNumber>(bits(word, 5, 5));
    }
  }
  // The stack pointer is only written by the forms above and by pre- and post-indexing; as destination 31 is
  // xzr.
  return into;
}

std::uint8_t length(std::span<const std::uint8_t> bytes) {
  return bytes.size() < 4 ? 0 : 4;
}

const char* register_name(RegisterNumber number) {
  static constexpr std::array names{"x0",  "x1",  "x2",  "x3",  "x4",  "x5",  "x6",  "x7",
                                    "x8",  "x9",  "x10", "x11", "x12", "x13", "x14", "x15",
                                    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23",
                                    "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp"};
  return number < names.size() ? names[number] : "?";
}

std::string text(std::span<const std::uint8_t> bytes, std::uint64_t address) {
  const Instruction each = decode(bytes, address);
  if (each.length == 0) return "(bad)";
  switch (each.flow) {
    case Flow::call: return fmt::format("bl {:#x}", each.target);
    case Flow::jump: return fmt::format("b {:#x}", each.target);
    case Flow::system_call: return "svc #0";
    default: break;
  }
  const char letter = each.width == 8 ? 'x' : 'w';
  switch (each.effect) {
    case Effect::constant: return fmt::format("mov {}, #{}", register_name(each.destination), each.immediate);
    case Effect::insert:
      return fmt::format("movk {}, #{}, lsl #{}", register_name(each.destination), each.immediate,
                         each.shift);
    case Effect::copy:
      return fmt::format("{} {}{}, {}{}", each.sign_extended ? "sxtw" : "mov",
                         each.sign_extended ? 'x' : letter, each.destination,
                         each.sign_extended ? 'w' : letter, each.source);
    case Effect::load:
      return fmt::format("ldr {}{}, [{}, #{}]", letter, each.destination, register_name(each.source),
                         each.immediate);
    default: break;
  }
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return fmt::format(".inst {:#010x}", word);
}

/// x0-x18 and the link register; x19-x28, x29 and sp are kept by the callee.
constexpr std::uint32_t call_clobbers = 0x7FFFFU | bit(x30);

}  // namespace

const InstructionSet aarch64{decode, length, text, register_name, x8, stack, x29, call_clobbers, bit(0),
                             4,      4,      0};

}  // namespace whomap
