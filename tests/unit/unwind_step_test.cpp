// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/step.h"

#include <dwarf.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <cstring>
#include <initializer_list>

namespace whomap {
namespace {

using namespace dwarf_register;

StackCopy words(std::uint64_t address, std::initializer_list<std::uint64_t> values) {
  StackCopy copy{address, std::vector<std::byte>(values.size() * 8)};
  std::memcpy(copy.bytes.data(), values.begin(), copy.bytes.size());
  return copy;
}

RegisterFile at(std::uint64_t stack_pointer) {
  return RegisterFile(Registers{0x400000, stack_pointer, 0x2000, 1, 2, 3, 4, 5});
}

Row row_of_pushed_rbx() {
  Row row;
  row.kind = Row::Kind::simple;
  row.cfa_register = rsp;
  row.cfa_offset = 16;
  row.return_address = -8;
  row.saved.fill(Row::not_saved);
  row.saved[0] = -16;
  return row;
}

TEST(StepSimple, RestoresWhatTheRowSaysAndKeepsTheRest) {
  const StackCopy copy = words(0x1000, {77, 0x401234, 99});
  RegisterFile registers = at(0x1000);
  registers.set(rax, 123);
  const Step step = step_simple(row_of_pushed_rbx(), StackReader(copy), registers);
  EXPECT_EQ(step.outcome, StepOutcome::stepped);
  EXPECT_EQ(registers[rsp], 0x1010U);
  EXPECT_EQ(registers[rip], 0x401234U);
  EXPECT_EQ(registers[rbx], 77U);
  EXPECT_EQ(registers[rbp], 0x2000U);
  EXPECT_EQ(registers[r15], 5U);
  EXPECT_FALSE(registers.known(rax)) << "a callee may have changed it";
}

TEST(StepSimple, EndsWithTheReasonAndWithoutAChange) {
  const StackCopy copy = words(0x1000, {77});
  RegisterFile registers = at(0x1000);
  Step step = step_simple(row_of_pushed_rbx(), StackReader(copy), registers);
  EXPECT_EQ(step.outcome, StepOutcome::unreadable);
  EXPECT_EQ(step.address, 0x1008U);
  EXPECT_EQ(registers[rsp], 0x1000U);

  const StackCopy zero = words(0x1000, {77, 0});
  EXPECT_EQ(step_simple(row_of_pushed_rbx(), StackReader(zero), registers).outcome,
            StepOutcome::no_return_address);

  Row by_scratch = row_of_pushed_rbx();
  by_scratch.cfa_register = r10;
  EXPECT_EQ(step_simple(by_scratch, StackReader(zero), registers).outcome, StepOutcome::unknown_register);
}

TEST(StepGeneral, EvaluatesRulesWithTheOldRegisters) {
  using Kind = RegisterRule::Kind;
  GeneralRow row;
  row.cfa = {{DW_OP_bregx, rsp, 16, 0}};
  for (RegisterRule& rule : row.rules) rule.kind = Kind::undefined;
  row.rules[rip] = {Kind::expression,
                    {{DW_OP_call_frame_cfa, 0, 0, 0}, {DW_OP_plus_uconst, 0 - std::uint64_t{8}, 0, 0}}};
  row.rules[rbx] = {Kind::expression, {{DW_OP_regx, rbp, 0, 0}}};   // kept in another register
  row.rules[rbp] = {Kind::expression, {{DW_OP_bregx, rbx, 0, 0}}};  // at an address outside the copy
  row.rules[r12].kind = Kind::same_value;
  const StackCopy copy = words(0x1000, {77, 0x401234});
  RegisterFile registers = at(0x1000);
  ASSERT_EQ(step_general(row, StackReader(copy), registers).outcome, StepOutcome::stepped);
  EXPECT_EQ(registers[rsp], 0x1010U);
  EXPECT_EQ(registers[rip], 0x401234U);
  EXPECT_EQ(registers[rbx], 0x2000U);
  EXPECT_EQ(registers[r12], 2U);
  EXPECT_FALSE(registers.known(rbp)) << "unreadable, so unknown, and the stack goes on";
  EXPECT_FALSE(registers.known(r13));
}

TEST(StepKernelSignal, ReadsTheInterruptedRegisters) {
  ucontext_t context{};
  context.uc_mcontext.gregs[REG_RIP] = 0x400123;
  context.uc_mcontext.gregs[REG_RSP] = 0x7000;
  context.uc_mcontext.gregs[REG_RBP] = 0x7100;
  context.uc_mcontext.gregs[REG_R10] = 10;
  context.uc_mcontext.gregs[REG_RAX] = 20;
  StackCopy copy{0x1000, std::vector<std::byte>(sizeof context)};
  std::memcpy(copy.bytes.data(), &context, sizeof context);
  RegisterFile registers = at(0x1000);
  ASSERT_EQ(step_kernel_signal(StackReader(copy), registers).outcome, StepOutcome::stepped);
  EXPECT_EQ(registers[rip], 0x400123U);
  EXPECT_EQ(registers[rsp], 0x7000U);
  EXPECT_EQ(registers[rbp], 0x7100U);
  EXPECT_EQ(registers[r10], 10U);
  EXPECT_EQ(registers[rax], 20U);
}

TEST(StackReader, NeverReadsOutside) {
  const StackCopy copy = words(0x1000, {1, 2});
  const StackReader reader(copy);
  std::uint64_t value = 0;
  EXPECT_TRUE(reader.read(0x1008, value));
  EXPECT_EQ(value, 2U);
  EXPECT_FALSE(reader.read(0x1009, value));
  EXPECT_FALSE(reader.read(0xFFF, value));
  EXPECT_FALSE(reader.read(0x1010, value));
  EXPECT_FALSE(reader.read(~std::uint64_t{0}, value));
  EXPECT_TRUE(reader.read(0x100F, 1, value));
}

}  // namespace
}  // namespace whomap
