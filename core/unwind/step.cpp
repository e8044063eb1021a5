// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/step.h"

#include <optional>

namespace whomap {
namespace {

using namespace dwarf_register;

Step failed(const ExpressionValue& value) {
  switch (value.failure) {
    case ExpressionFailure::unreadable: return {StepOutcome::unreadable, value.address};
    case ExpressionFailure::unknown_register: return {StepOutcome::unknown_register, 0};
    default: return {StepOutcome::unsupported, 0};
  }
}

}  // namespace

Step step_simple(const Row& row, const StackReader& stack, RegisterFile& registers) {
  if (!registers.known(row.cfa_register)) return {StepOutcome::unknown_register, 0};
  const auto plus = [](std::uint64_t base, std::int32_t offset) {
    return base + static_cast<std::uint64_t>(std::int64_t{offset});
  };
  const std::uint64_t cfa = plus(registers[row.cfa_register], row.cfa_offset);
  std::uint64_t return_address = 0;
  if (!stack.read(plus(cfa, row.return_address), return_address))
    return {StepOutcome::unreadable, plus(cfa, row.return_address)};
  if (return_address == 0) return {StepOutcome::no_return_address, 0};

  RegisterFile caller = registers;
  caller.keep_callee_saved();
  for (std::size_t i = 0; i < row.saved.size(); ++i) {
    if (row.saved[i] == Row::not_saved) continue;
    std::uint64_t value = 0;
    if (!stack.read(plus(cfa, row.saved[i]), value))
      return {StepOutcome::unreadable, plus(cfa, row.saved[i])};
    caller.set(callee_saved[i], value);
  }
  caller.set(rsp, cfa);
  caller.set(rip, return_address);
  registers = caller;
  return {};
}

Step step_general(const GeneralRow& row, const StackReader& stack, RegisterFile& registers) {
  const ExpressionValue cfa = evaluate(row.cfa, {registers, stack, std::nullopt});
  if (cfa.failure != ExpressionFailure::none) return failed(cfa);

  RegisterFile caller;
  for (unsigned number = 0; number < count; ++number) {
    const RegisterRule& rule = row.rules[number];
    if (rule.kind == RegisterRule::Kind::undefined) continue;
    if (rule.kind == RegisterRule::Kind::same_value) {
      // The return address is not a register that a frame could leave alone.
      if (number != rip && registers.known(number)) caller.set(number, registers[number]);
      continue;
    }
    ExpressionValue result = evaluate(rule.operations, {registers, stack, cfa.value});
    if (result.failure == ExpressionFailure::none && result.is_location) {
      result.address = result.value;
      if (!stack.read(result.address, result.value)) result.failure = ExpressionFailure::unreadable;
    }
    if (result.failure == ExpressionFailure::none)
      caller.set(number, result.value);
    else if (number == rip || number == rsp)
      return failed(result);
    // Any other register just stays unknown; that ends the stack only where it is needed.
  }
  if (!caller.known(rsp)) caller.set(rsp, cfa.value);
  if (!caller.known(rip)) return {StepOutcome::unsupported, 0};
  if (caller[rip] == 0) return {StepOutcome::no_return_address, 0};
  registers = caller;
  return {};
}

Step step_kernel_signal(const StackReader& stack, RegisterFile& registers) {
  // The handler's return has popped `pretcode`, so rsp points at the ucontext of struct rt_sigframe
  // (Linux arch/x86/include/asm/sigframe.h). Its sigcontext begins at 40 (uapi/asm/ucontext.h:
  // uc_flags, uc_link, uc_stack) and holds these registers in this order (uapi/asm/sigcontext.h).
  constexpr std::uint64_t sigcontext = 40;
  constexpr std::array<unsigned, 17> order{r8,  r9,  r10, r11, r12, r13, r14, r15, rdi,
                                           rsi, rbp, rbx, rdx, rax, rcx, rsp, rip};
  if (!registers.known(rsp)) return {StepOutcome::unknown_register, 0};
  RegisterFile interrupted;
  std::uint64_t address = registers[rsp] + sigcontext;
  for (const unsigned number : order) {
    std::uint64_t value = 0;
    if (!stack.read(address, value)) return {StepOutcome::unreadable, address};
    interrupted.set(number, value);
    address += sizeof value;
  }
  registers = interrupted;
  return {};
}

}  // namespace whomap
