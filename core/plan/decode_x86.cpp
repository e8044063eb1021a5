// SPDX-License-Identifier: Apache-2.0
// x86-64, by Zydis. Register use: System V ABI, AMD64 supplement, 3.2.1 and A.2.1.
#include <elf.h>

#include <algorithm>
#include <array>

#include <Zydis/Zydis.h>

#include "core/plan/instruction.h"

namespace whomap {
namespace {

constexpr RegisterNumber rax = 0, rcx = 1, rdx = 2, rsp = 4, rbp = 5, rsi = 6, rdi = 7, r8 = 8, r11 = 11;

constexpr std::uint32_t bit(RegisterNumber number) {
  return std::uint32_t{1} << number;
}

ZydisDecoder make_decoder(bool lengths_only) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  if (lengths_only) ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
  return decoder;
}

const ZydisDecoder& full_decoder() {
  static const ZydisDecoder decoder = make_decoder(false);
  return decoder;
}

/// Faults in user mode, or has not been emitted by compilers for x86-64.
bool is_unusual(const ZydisDecodedInstruction& info, const ZydisDecodedOperand& first) {
  if ((info.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0 && info.mnemonic != ZYDIS_MNEMONIC_HLT) return true;
  if (info.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return true;
  switch (info.meta.category) {
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_INTERRUPT:
      // Go writes its breakpoints as cd 03.
      return info.mnemonic != ZYDIS_MNEMONIC_INT3 &&
             !(info.mnemonic == ZYDIS_MNEMONIC_INT && first.imm.value.u == 3);
    case ZYDIS_CATEGORY_DECIMAL: return true;
    default: break;
  }
  switch (info.mnemonic) {
    case ZYDIS_MNEMONIC_ENTER:
    case ZYDIS_MNEMONIC_XLAT:
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JRCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_CMC:
    case ZYDIS_MNEMONIC_STC:
    case ZYDIS_MNEMONIC_CLC:
    case ZYDIS_MNEMONIC_LAHF:
    case ZYDIS_MNEMONIC_SAHF: return true;
    default: return false;
  }
}

RegisterNumber general(ZydisRegister reg) {
  const ZydisRegister wide = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (ZydisRegisterGetClass(wide) != ZYDIS_REGCLASS_GPR64) return no_register;
  return static_cast<RegisterNumber>(ZydisRegisterGetId(wide));
}

bool is_high_byte(ZydisRegister reg) {
  return reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH;
}

/// An operand as far as it can be followed.
struct Operand {
  enum class Kind : std::uint8_t { none, reg, immediate, memory } kind = Kind::none;
  RegisterNumber number = no_register;  ///< register, or base of memory
  std::uint8_t bytes = 0;
  bool simple = false;  ///< no index, no segment, base is a general register or absent
  bool rip_relative = false;
  std::int64_t value = 0;  ///< immediate, or displacement
};

Operand describe(const ZydisDecodedOperand& operand) {
  Operand result;
  result.bytes = static_cast<std::uint8_t>(operand.size / 8);
  switch (operand.type) {
    case ZYDIS_OPERAND_TYPE_REGISTER:
      result.kind = Operand::Kind::reg;
      result.number = general(operand.reg.value);
      result.simple = result.number != no_register && !is_high_byte(operand.reg.value);
      break;
    case ZYDIS_OPERAND_TYPE_IMMEDIATE:
      result.kind = Operand::Kind::immediate;
      result.value = operand.imm.value.s;
      break;
    case ZYDIS_OPERAND_TYPE_MEMORY: {
      result.kind = Operand::Kind::memory;
      result.value = operand.mem.disp.has_displacement ? operand.mem.disp.value : 0;
      result.rip_relative = operand.mem.base == ZYDIS_REGISTER_RIP;
      result.number = result.rip_relative ? no_register : general(operand.mem.base);
      const bool segment =
          operand.mem.segment == ZYDIS_REGISTER_FS || operand.mem.segment == ZYDIS_REGISTER_GS;
      result.simple = operand.mem.index == ZYDIS_REGISTER_NONE && !segment;
      break;
    }
    default: break;
  }
  return result;
}

/// Everything the instruction writes becomes unknown; the caller takes back what it knows better.
void note_writes(Instruction& into, const ZydisDecodedInstruction& info,
                 const ZydisDecodedOperand* operands) {
  for (unsigned i = 0; i < info.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
    const Operand written = describe(operand);
    if (written.kind == Operand::Kind::reg && written.number != no_register)
      into.clobbered |= bit(written.number);
    if (written.kind == Operand::Kind::memory && operand.mem.type == ZYDIS_MEMOP_TYPE_MEM) {
      const bool followed = written.simple && written.number != no_register && written.bytes != 0;
      into.effect = followed ? Effect::store : Effect::store_anywhere;
      into.destination = written.number;
      into.source = no_register;
      into.immediate = written.value;
      into.width = written.bytes;
    }
  }
}

void set_flow(Instruction& into, const ZydisDecodedInstruction& info, const Operand& first) {
  const bool direct = first.kind == Operand::Kind::immediate;
  switch (info.meta.category) {
    case ZYDIS_CATEGORY_CALL: into.flow = direct ? Flow::call : Flow::indirect_call; break;
    case ZYDIS_CATEGORY_UNCOND_BR: into.flow = direct ? Flow::jump : Flow::indirect_jump; break;
    case ZYDIS_CATEGORY_COND_BR: into.flow = Flow::branch; break;
    case ZYDIS_CATEGORY_RET: into.flow = Flow::end; return;
    default:
      if (info.mnemonic == ZYDIS_MNEMONIC_SYSCALL) into.flow = Flow::system_call;
      if (info.mnemonic == ZYDIS_MNEMONIC_UD2 || info.mnemonic == ZYDIS_MNEMONIC_HLT ||
          info.mnemonic == ZYDIS_MNEMONIC_INT3)
        into.flow = Flow::end;
      return;
  }
  if (direct) into.target = into.next() + static_cast<std::uint64_t>(first.value);
  if (first.kind != Operand::Kind::memory) return;
  if (first.rip_relative)
    into.slot = into.next() + static_cast<std::uint64_t>(first.value);
  else if (first.number == no_register)
    into.table = static_cast<std::uint64_t>(first.value);
}

void set_move(Instruction& into, const Operand& to, const Operand& from, bool sign_extended) {
  using Kind = Operand::Kind;
  if (to.kind == Kind::reg && to.simple) {
    if (from.kind == Kind::immediate) {
      into.effect = to.bytes >= 4 ? Effect::constant : Effect::insert;
      into.width = to.bytes;
      into.immediate =
          to.bytes == 4 ? static_cast<std::int64_t>(static_cast<std::uint32_t>(from.value)) : from.value;
    } else if (from.kind == Kind::reg && from.simple && to.bytes >= 4) {
      into.effect = Effect::copy;
      into.source = from.number;
      into.width = std::min(from.bytes, to.bytes);
      into.sign_extended = sign_extended;
    } else if (from.kind == Kind::memory && from.simple && from.number != no_register && to.bytes >= 4) {
      into.effect = Effect::load;
      into.source = from.number;
      into.immediate = from.value;
      into.width = std::min(from.bytes, to.bytes);
      into.sign_extended = sign_extended;
    } else {
      return;
    }
    into.destination = to.number;
  } else if (to.kind == Kind::memory && into.effect == Effect::store) {
    if (from.kind == Kind::immediate) {
      into.effect = Effect::store_constant;
      into.stored = from.value;
    } else if (from.kind == Kind::reg && from.simple && to.bytes >= 4) {
      into.source = from.number;
    }
  }
}

/// destination = source (op) immediate, for a register of at least 32 bits.
void set_arithmetic(Instruction& into, Effect effect, const Operand& to, RegisterNumber source,
                    std::int64_t value) {
  if (to.kind != Operand::Kind::reg || !to.simple || to.bytes < 4) return;
  into.effect = effect;
  into.destination = to.number;
  into.source = source;
  into.immediate = value;
  into.width = to.bytes;
}

void set_effect(Instruction& into, const ZydisDecodedInstruction& info, const Operand& first,
                const Operand& second) {
  using Kind = Operand::Kind;
  const bool by_immediate = second.kind == Kind::immediate;
  const bool same_register = first.kind == Kind::reg && second.kind == Kind::reg && first.simple &&
                             second.simple && first.number == second.number && first.bytes >= 4;
  switch (info.mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_MOVZX: set_move(into, first, second, false); break;
    case ZYDIS_MNEMONIC_MOVSX:
    case ZYDIS_MNEMONIC_MOVSXD: set_move(into, first, second, true); break;
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_SUB:
      if (same_register) {
        into.effect = Effect::constant;
        into.destination = first.number;
        into.immediate = 0;
      } else if (info.mnemonic == ZYDIS_MNEMONIC_SUB && by_immediate) {
        set_arithmetic(into, Effect::add, first, first.number, -second.value);
      }
      break;
    case ZYDIS_MNEMONIC_ADD:
      if (by_immediate) set_arithmetic(into, Effect::add, first, first.number, second.value);
      break;
    case ZYDIS_MNEMONIC_OR:
      if (by_immediate) set_arithmetic(into, Effect::bit_or, first, first.number, second.value);
      break;
    case ZYDIS_MNEMONIC_AND:
      if (by_immediate) set_arithmetic(into, Effect::bit_and, first, first.number, second.value);
      break;
    case ZYDIS_MNEMONIC_INC: set_arithmetic(into, Effect::add, first, first.number, 1); break;
    case ZYDIS_MNEMONIC_DEC: set_arithmetic(into, Effect::add, first, first.number, -1); break;
    case ZYDIS_MNEMONIC_LEA:
      if (second.rip_relative)
        into.table = into.next() + static_cast<std::uint64_t>(second.value);
      else if (second.simple && second.number != no_register)
        set_arithmetic(into, Effect::add, first, second.number, second.value);
      break;
    case ZYDIS_MNEMONIC_XCHG:
      if (first.kind == Kind::reg && second.kind == Kind::reg && first.simple && second.simple &&
          first.bytes == 8) {
        into.effect = Effect::exchange;
        into.destination = first.number;
        into.source = second.number;
      }
      break;
    case ZYDIS_MNEMONIC_PUSH:
      into.effect = first.kind == Kind::immediate ? Effect::push_constant : Effect::push;
      into.source = first.kind == Kind::reg && first.simple ? first.number : no_register;
      into.immediate = first.value;
      break;
    case ZYDIS_MNEMONIC_POP:
      if (first.kind == Kind::reg && first.simple) {
        into.effect = Effect::pop;
        into.destination = first.number;
      }
      break;
    case ZYDIS_MNEMONIC_LEAVE: into.effect = Effect::leave; break;
    default:
      if (info.meta.category == ZYDIS_CATEGORY_CMOV && first.simple && second.kind == Kind::reg &&
          second.simple && first.bytes >= 4) {
        into.effect = Effect::conditional_copy;
        into.destination = first.number;
        into.source = second.number;
        into.width = first.bytes;
      }
  }
  switch (into.effect) {
    case Effect::push:
    case Effect::push_constant: into.clobbered &= ~bit(rsp); break;
    case Effect::pop: into.clobbered &= ~(bit(rsp) | bit(into.destination)); break;
    case Effect::leave: into.clobbered &= ~(bit(rsp) | bit(rbp)); break;
    case Effect::exchange: into.clobbered &= ~(bit(into.source) | bit(into.destination)); break;
    case Effect::other:
    case Effect::store:
    case Effect::store_constant:
    case Effect::store_anywhere: break;
    default: into.clobbered &= ~bit(into.destination);
  }
}

Instruction decode(std::span<const std::uint8_t> bytes, std::uint64_t address) {
  Instruction into;
  into.address = address;
  ZydisDecodedInstruction info;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), bytes.size(), &info, operands.data())))
    return into;
  into.length = info.length;
  into.unusual = is_unusual(info, operands[0]);
  const Operand first = info.operand_count_visible > 0 ? describe(operands[0]) : Operand{};
  const Operand second = info.operand_count_visible > 1 ? describe(operands[1]) : Operand{};
  set_flow(into, info, first);
  if (into.flow != Flow::next) {
    // A call pushes and its return pops: between them the stack pointer is as it was.
    if (into.flow == Flow::system_call) into.clobbered = bit(rax) | bit(rcx) | bit(r11);
    if (into.flow == Flow::branch) note_writes(into, info, operands.data());  // loop counts rcx down
    into.effect = Effect::other;
    return into;
  }
  if (info.mnemonic == ZYDIS_MNEMONIC_NOP) {
    into.padding = true;
    return into;
  }
  note_writes(into, info, operands.data());
  set_effect(into, info, first, second);
  return into;
}

std::uint8_t length(std::span<const std::uint8_t> bytes) {
  static const ZydisDecoder decoder = make_decoder(true);
  ZydisDecodedInstruction info;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, bytes.data(), bytes.size(), &info)))
    return 0;
  return info.length;
}

std::string text(std::span<const std::uint8_t> bytes, std::uint64_t address) {
  ZydisDecodedInstruction info;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), bytes.size(), &info, operands.data())))
    return "(bad)";
  ZydisFormatter formatter;
  ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_ATT);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
  ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
  std::array<char, 128> buffer{};
  if (!ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &info, operands.data(),
                                                    info.operand_count_visible, buffer.data(), buffer.size(),
                                                    address, nullptr)))
    return "(bad)";
  return buffer.data();
}

const char* register_name(RegisterNumber number) {
  static constexpr std::array names{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                    "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
  return number < names.size() ? names[number] : "?";
}

constexpr std::uint32_t call_clobbers =
    bit(rax) | bit(rcx) | bit(rdx) | bit(rsi) | bit(rdi) | bit(r8) | bit(9) | bit(10) | bit(r11);

}  // namespace

const InstructionSet x86_64{decode,
                            length,
                            text,
                            register_name,
                            rax,
                            rsp,
                            rbp,
                            call_clobbers,
                            bit(rax) | bit(rcx) | bit(r11),
                            ZYDIS_MAX_INSTRUCTION_LENGTH,
                            1,
                            8};

const InstructionSet* instruction_set(std::uint16_t machine) {
  if (machine == EM_X86_64) return &x86_64;
  if (machine == EM_AARCH64) return &aarch64;
  return nullptr;
}

}  // namespace whomap
