// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/expression.h"

#include <algorithm>
#include <array>

#include <dwarf.h>

namespace whomap {
namespace {

/// More than any compiler's CFI needs; a loop in a damaged file ends here.
constexpr int step_limit = 1000;

class Machine {
 public:
  explicit Machine(const ExpressionInput& input) : input_(input) {}

  ExpressionValue run(std::span<const Dwarf_Op> operations);

 private:
  void fail(ExpressionFailure why) {
    if (result_.failure == ExpressionFailure::none) result_.failure = why;
  }
  void push(std::uint64_t value) {
    if (depth_ == stack_.size()) return fail(ExpressionFailure::malformed);
    stack_[depth_++] = value;
  }
  std::uint64_t pop() {
    if (depth_ == 0) {
      fail(ExpressionFailure::malformed);
      return 0;
    }
    return stack_[--depth_];
  }
  void pick(std::uint64_t from_top) {
    if (from_top >= depth_) return fail(ExpressionFailure::malformed);
    push(stack_[depth_ - 1 - from_top]);
  }
  void push_register(std::uint64_t number, std::uint64_t offset) {
    if (number >= dwarf_register::count || !input_.registers.known(static_cast<unsigned>(number)))
      return fail(ExpressionFailure::unknown_register);
    push(input_.registers[static_cast<unsigned>(number)] + offset);
  }
  void dereference(std::uint64_t size) {
    if (size == 0 || size > 8) return fail(ExpressionFailure::malformed);
    const std::uint64_t address = pop();
    std::uint64_t value = 0;
    if (result_.failure == ExpressionFailure::none && !input_.stack.read(address, size, value)) {
      fail(ExpressionFailure::unreadable);
      result_.address = address;
    }
    push(value);
  }
  bool stack_operation(const Dwarf_Op& operation);
  bool arithmetic(const Dwarf_Op& operation);
  bool comparison(const Dwarf_Op& operation);

  const ExpressionInput& input_;
  ExpressionValue result_;
  std::array<std::uint64_t, 64> stack_{};
  std::size_t depth_ = 0;
};

bool Machine::stack_operation(const Dwarf_Op& operation) {
  switch (operation.atom) {
    case DW_OP_nop: return true;
    case DW_OP_dup: pick(0); return true;
    case DW_OP_over: pick(1); return true;
    case DW_OP_pick: pick(operation.number); return true;
    case DW_OP_drop: pop(); return true;
    case DW_OP_swap: {
      const std::uint64_t top = pop(), below = pop();
      push(top);
      push(below);
      return true;
    }
    case DW_OP_rot: {
      const std::uint64_t top = pop(), second = pop(), third = pop();
      push(top);
      push(third);
      push(second);
      return true;
    }
    case DW_OP_deref: dereference(8); return true;
    case DW_OP_deref_size: dereference(operation.number); return true;
    case DW_OP_addr:
    case DW_OP_const1u:
    case DW_OP_const2u:
    case DW_OP_const4u:
    case DW_OP_const8u:
    case DW_OP_const1s:
    case DW_OP_const2s:
    case DW_OP_const4s:
    case DW_OP_const8s:
    case DW_OP_constu:
    case DW_OP_consts:
      // libdw has extended the signed ones already. DW_OP_addr would need the load bias.
      if (operation.atom == DW_OP_addr) fail(ExpressionFailure::unsupported);
      push(operation.number);
      return true;
    case DW_OP_bregx: push_register(operation.number, operation.number2); return true;
    case DW_OP_call_frame_cfa:
      if (!input_.cfa) fail(ExpressionFailure::malformed);
      push(input_.cfa.value_or(0));
      return true;
    default: break;
  }
  if (operation.atom >= DW_OP_lit0 && operation.atom <= DW_OP_lit31) {
    push(operation.atom - DW_OP_lit0);
    return true;
  }
  if (operation.atom >= DW_OP_breg0 && operation.atom <= DW_OP_breg31) {
    push_register(operation.atom - DW_OP_breg0, operation.number);
    return true;
  }
  return false;
}

bool Machine::arithmetic(const Dwarf_Op& operation) {
  switch (operation.atom) {
    case DW_OP_plus_uconst: push(pop() + operation.number); return true;
    case DW_OP_neg: push(0 - pop()); return true;
    case DW_OP_not: push(~pop()); return true;
    case DW_OP_abs: {
      const std::uint64_t value = pop();
      push(static_cast<std::int64_t>(value) < 0 ? 0 - value : value);
      return true;
    }
    case DW_OP_plus:
    case DW_OP_minus:
    case DW_OP_mul:
    case DW_OP_div:
    case DW_OP_mod:
    case DW_OP_and:
    case DW_OP_or:
    case DW_OP_xor:
    case DW_OP_shl:
    case DW_OP_shr:
    case DW_OP_shra: break;
    default: return false;
  }
  const std::uint64_t right = pop(), left = pop();
  const auto signed_left = static_cast<std::int64_t>(left);
  switch (operation.atom) {
    case DW_OP_plus: push(left + right); break;
    case DW_OP_minus: push(left - right); break;
    case DW_OP_mul: push(left * right); break;
    case DW_OP_div:
      if (right == 0) fail(ExpressionFailure::malformed);
      // INT64_MIN / -1 does not fit; negation wraps to what the hardware-free answer is modulo 2^64.
      else if (right == ~std::uint64_t{0})
        push(0 - left);
      else
        push(static_cast<std::uint64_t>(signed_left / static_cast<std::int64_t>(right)));
      break;
    case DW_OP_mod:
      if (right == 0)
        fail(ExpressionFailure::malformed);
      else
        push(left % right);
      break;
    case DW_OP_and: push(left & right); break;
    case DW_OP_or: push(left | right); break;
    case DW_OP_xor: push(left ^ right); break;
    case DW_OP_shl: push(right < 64 ? left << right : 0); break;
    case DW_OP_shr: push(right < 64 ? left >> right : 0); break;
    default: push(static_cast<std::uint64_t>(signed_left >> std::min<std::uint64_t>(right, 63))); break;
  }
  return true;
}

bool Machine::comparison(const Dwarf_Op& operation) {
  if (operation.atom < DW_OP_eq || operation.atom > DW_OP_ne) return false;
  // Signed, as DWARF 5 section 2.5.1.5 wants.
  const auto right = static_cast<std::int64_t>(pop()), left = static_cast<std::int64_t>(pop());
  switch (operation.atom) {
    case DW_OP_eq: push(left == right); break;
    case DW_OP_ge: push(left >= right); break;
    case DW_OP_gt: push(left > right); break;
    case DW_OP_le: push(left <= right); break;
    case DW_OP_lt: push(left < right); break;
    default: push(left != right); break;
  }
  return true;
}

ExpressionValue Machine::run(std::span<const Dwarf_Op> operations) {
  int steps = 0;
  for (std::size_t i = 0; i < operations.size() && result_.failure == ExpressionFailure::none; ++i) {
    const Dwarf_Op& operation = operations[i];
    if (++steps > step_limit) fail(ExpressionFailure::malformed);
    const bool last = i + 1 == operations.size();
    if (operation.atom == DW_OP_skip || operation.atom == DW_OP_bra) {
      if (operation.atom == DW_OP_bra && pop() == 0) continue;
      // Relative to the operation that follows: one byte of opcode, two of operand.
      const Dwarf_Word target =
          operation.offset + 3 + static_cast<Dwarf_Word>(static_cast<std::int16_t>(operation.number));
      const auto found = std::find_if(operations.begin(), operations.end(),
                                      [&](const Dwarf_Op& other) { return other.offset == target; });
      if (found == operations.end())
        fail(ExpressionFailure::malformed);
      else
        i = static_cast<std::size_t>(found - operations.begin()) - 1;  // wraps for 0, ++i undoes it
    } else if (operation.atom == DW_OP_stack_value) {
      if (!last) fail(ExpressionFailure::malformed);
      result_.is_location = false;
    } else if (last && operation.atom >= DW_OP_reg0 && operation.atom <= DW_OP_reg31) {
      push_register(operation.atom - DW_OP_reg0, 0);
      result_.is_location = false;
    } else if (last && operation.atom == DW_OP_regx) {
      push_register(operation.number, 0);
      result_.is_location = false;
    } else if (!stack_operation(operation) && !arithmetic(operation) && !comparison(operation)) {
      fail(ExpressionFailure::unsupported);
    }
  }
  const std::uint64_t top = pop();  // an empty stack is a failure of its own
  result_.value = result_.failure == ExpressionFailure::none ? top : 0;
  return result_;
}

}  // namespace

ExpressionValue evaluate(std::span<const Dwarf_Op> operations, const ExpressionInput& input) {
  return Machine(input).run(operations);
}

}  // namespace whomap
