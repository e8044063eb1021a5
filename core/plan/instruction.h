// SPDX-License-Identifier: Apache-2.0
// What the plan needs to know of one machine instruction, the same for x86-64 and AArch64.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace whomap {

/// A general purpose register by its number in the instruction encoding: rax rcx rdx rbx rsp rbp rsi rdi
/// r8..r15 are 0..15; x0..x30 and sp are 0..31.
using RegisterNumber = std::uint8_t;
inline constexpr RegisterNumber no_register = 0xFF;
inline constexpr unsigned register_count = 32;

/// Where control goes after the instruction.
enum class Flow : std::uint8_t {
  next,
  jump,           ///< direct, to `target`
  branch,         ///< direct to `target`, or on to the next
  call,           ///< direct, to `target`; comes back
  indirect_jump,  ///< through a register, or through memory at `slot`
  indirect_call,
  end,  ///< ret, ud2, hlt, int3
  system_call,
};

/// What it does to registers and stack, as far as a number could travel that way.
enum class Effect : std::uint8_t {
  other,             ///< only `clobbered`
  constant,          ///< destination = immediate
  insert,            ///< destination's bits [shift, shift + 8 * width) = immediate (mov $9,%al; movk)
  copy,              ///< destination = source, `width` bytes of it, sign- or zero-extended
  conditional_copy,  ///< destination = source or destination
  exchange,          ///< destination <-> source
  add,               ///< destination = source + immediate
  bit_or,            ///< destination = source | immediate
  bit_and,           ///< destination = source & immediate
  load,              ///< destination = memory at source + immediate
  store,             ///< memory at destination + immediate = source (no_register: an unknown value)
  store_constant,    ///< memory at destination + immediate = stored
  store_anywhere,    ///< memory at an address that is not tracked
  push,              ///< of source (no_register: of an unknown value)
  push_constant,
  pop,    ///< into destination
  leave,  ///< rsp = rbp; pop rbp
};

struct Instruction {
  std::uint64_t address = 0;
  std::uint8_t length = 0;  ///< bytes; 0: could not be decoded
  Flow flow = Flow::next;
  Effect effect = Effect::other;
  std::uint8_t width = 8;  ///< bytes moved
  bool sign_extended = false;
  bool padding = false;  ///< does nothing: nop of any length
  bool unusual = false;  ///< privileged, or of a kind that programs do not contain: more likely data
  std::uint8_t shift = 0;
  RegisterNumber destination = no_register;
  RegisterNumber source = no_register;
  std::int64_t immediate = 0;
  std::int64_t stored = 0;
  std::uint32_t clobbered = 0;  ///< bit per register that holds an unknown value afterwards
  std::uint64_t target = 0;     ///< of a direct jump, branch or call
  std::uint64_t slot = 0;       ///< address of the pointer an indirect jump or call goes through, when fixed
  std::uint64_t table = 0;  ///< address that a jump table may start at: lea table(%rip), jmp *table(,%rax,8)

  [[nodiscard]] std::uint64_t next() const { return address + length; }
};

/// The facts of an instruction set that finding and following numbers depends on.
struct InstructionSet {
  Instruction (*decode)(std::span<const std::uint8_t> bytes, std::uint64_t address);
  /// Length only, several times as fast; 0 when it is no instruction.
  std::uint8_t (*length)(std::span<const std::uint8_t> bytes);
  std::string (*text)(std::span<const std::uint8_t> bytes, std::uint64_t address);
  const char* (*register_name)(RegisterNumber number);
  RegisterNumber number_register;  ///< of a system call: man 2 syscall
  RegisterNumber stack_pointer;
  RegisterNumber frame_pointer;
  std::uint32_t call_clobbers;  ///< caller-saved registers of the ABI
  std::uint32_t system_call_clobbers;
  std::uint8_t longest;               ///< bytes of the longest instruction
  std::uint8_t alignment;             ///< instructions start at multiples of this
  std::uint8_t return_address_bytes;  ///< what a call pushes
};

extern const InstructionSet x86_64;
extern const InstructionSet aarch64;

/// By ELF machine number, nullptr for one that is not known.
const InstructionSet* instruction_set(std::uint16_t machine);

}  // namespace whomap
