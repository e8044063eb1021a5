// SPDX-License-Identifier: Apache-2.0
// Following the system call's number through small pieces of machine code.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "core/plan/function_code.h"
#include "core/plan/number_flow.h"

namespace whomap {
namespace {

constexpr std::uint64_t base = 0x1000;

/// The number register's value before the first `syscall` in the bytes.
struct Follow {
  explicit Follow(std::vector<std::uint8_t> bytes, bool entry_known = true)
      : view(CodeView::of_bytes(base, bytes)),
        code(decode_function(view, x86_64, {base, base + bytes.size()}, entry_known)) {
    const NumberFlow flow(code, x86_64);
    for (const Instruction& each : code.instructions) {
      if (each.flow != Flow::system_call) continue;
      number = flow.before(each.address).registers[x86_64.number_register];
      break;
    }
  }
  CodeView view;
  FunctionCode code;
  Value number;
};

TEST(PlanNumber, ImmediateIsConstant) {
  const Follow follow({0xB8, 0x09, 0, 0, 0, 0x0F, 0x05, 0xC3});  // mov $9,%eax; syscall; ret
  EXPECT_EQ(follow.number.single(), 9);
  EXPECT_EQ(follow.number.proof(), base);
}

TEST(PlanNumber, XorAndAddAndPushPop) {
  EXPECT_EQ(Follow({0x31, 0xC0, 0x0F, 0x05}).number.single(), 0);  // xor %eax,%eax
  EXPECT_EQ(Follow({0x31, 0xFF, 0x8D, 0x47, 0x09, 0x0F, 0x05}).number.single(),
            9);                                                          // xor %edi,%edi; lea 9(%rdi),%eax
  EXPECT_EQ(Follow({0x6A, 0x09, 0x58, 0x0F, 0x05}).number.single(), 9);  // push $9; pop %rax
  EXPECT_EQ(Follow({0x31, 0xC0, 0xB0, 0x0B, 0x0F, 0x05}).number.single(), 11);  // xor %eax,%eax; mov $11,%al
  EXPECT_EQ(Follow({0x41, 0xB8, 9, 0, 0, 0, 0x44, 0x89, 0xC0, 0x0F, 0x05}).number.single(),
            9);  // mov $9,%r8d; mov %r8d,%eax
}

TEST(PlanNumber, SameConstantOnBothPathsIsConstant) {
  // mov $9,%eax; test %edi,%edi; je L; mov $9,%eax; L: syscall
  EXPECT_EQ(Follow({0xB8, 9, 0, 0, 0, 0x85, 0xFF, 0x74, 5, 0xB8, 9, 0, 0, 0, 0x0F, 0x05}).number.single(), 9);
}

TEST(PlanNumber, DifferentConstantsAreASet) {
  const Follow follow({0xB8, 9, 0, 0, 0, 0x85, 0xFF, 0x74, 5, 0xB8, 11, 0, 0, 0, 0x0F, 0x05});
  EXPECT_FALSE(follow.number.single());
  ASSERT_EQ(follow.number.constants().size(), 2U);
  EXPECT_EQ(follow.number.constants()[0], 9);
  EXPECT_EQ(follow.number.constants()[1], 11);
}

TEST(PlanNumber, LoopThatChangesTheNumberIsUnknown) {
  // mov $9,%eax; L: inc %eax; cmp ... ; jne L; syscall
  EXPECT_EQ(Follow({0xB8, 9, 0, 0, 0, 0xFF, 0xC0, 0x85, 0xFF, 0x75, 0xFA, 0x0F, 0x05}).number.kind(),
            Value::Kind::unknown);
}

TEST(PlanNumber, FirstArgumentIsADispatcher) {
  const Follow follow(
      {0x48, 0x89, 0xF8, 0x48, 0x89, 0xF7, 0x0F, 0x05});  // mov %rdi,%rax; mov %rsi,%rdi; syscall
  EXPECT_EQ(follow.number.kind(), Value::Kind::entry_register);
  EXPECT_EQ(follow.number.entry_register(), 7);  // rdi
  EXPECT_FALSE(follow.number.low_half());
  EXPECT_EQ(follow.number.proof(), base);
}

TEST(PlanNumber, ArgumentSpilledToTheStackIsFollowed) {
  // push %rbp; mov %rsp,%rbp; mov %edi,-4(%rbp); mov -4(%rbp),%eax; syscall   (gcc -O0)
  const Follow follow({0x55, 0x48, 0x89, 0xE5, 0x89, 0x7D, 0xFC, 0x8B, 0x45, 0xFC, 0x0F, 0x05});
  EXPECT_EQ(follow.number.kind(), Value::Kind::entry_register);
  EXPECT_EQ(follow.number.entry_register(), 7);
  EXPECT_TRUE(follow.number.low_half());
}

TEST(PlanNumber, SpilledWordIsLostWhenItsAddressEscapes) {
  // push %rdi; mov %rsp,%rsi; call +0; mov (%rsp),%rax; syscall
  EXPECT_EQ(
      Follow({0x57, 0x48, 0x89, 0xE6, 0xE8, 0, 0, 0, 0, 0x48, 0x8B, 0x04, 0x24, 0x0F, 0x05}).number.kind(),
      Value::Kind::unknown);
}

TEST(PlanNumber, NumberOnTheStackAtEntry) {
  const Follow follow({0x48, 0x8B, 0x44, 0x24, 0x08, 0x0F, 0x05});  // mov 8(%rsp),%rax; syscall: Go's ABI0
  EXPECT_EQ(follow.number.kind(), Value::Kind::entry_stack);
  EXPECT_EQ(follow.number.offset(), 8);
}

TEST(PlanNumber, CallDestroysTheNumber) {
  EXPECT_EQ(Follow({0xB8, 9, 0, 0, 0, 0xE8, 0, 0, 0, 0, 0x0F, 0x05}).number.kind(), Value::Kind::unknown);
}

TEST(PlanNumber, SecondSystemCallNeedsItsOwnNumber) {
  const std::vector<std::uint8_t> bytes{0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0x0F, 0x05};
  const CodeView view = CodeView::of_bytes(base, bytes);
  const FunctionCode code = decode_function(view, x86_64, {base, base + bytes.size()}, true);
  const NumberFlow flow(code, x86_64);
  EXPECT_EQ(flow.before(base + 5).registers[0].single(), 9);
  EXPECT_EQ(flow.before(base + 7).registers[0].kind(), Value::Kind::unknown);
}

TEST(PlanNumber, UnknownEntryHasNoParameters) {
  EXPECT_EQ(Follow({0x48, 0x89, 0xF8, 0x0F, 0x05}, false).number.kind(), Value::Kind::unknown);
}

TEST(PlanNumber, PaddingIsNotAPath) {
  // mov $9,%eax; jmp L; nopl 0(%rax); M: dec %edi; L: test %edi,%edi; jne M; syscall
  EXPECT_EQ(
      Follow({0xB8, 9, 0, 0, 0, 0xEB, 5, 0x0F, 0x1F, 0x00, 0xFF, 0xCF, 0x85, 0xFF, 0x75, 0xFA, 0x0F, 0x05})
          .number.single(),
      9);
}

TEST(PlanNumber, CodeThatNoPathReachesMayHaveAnyNumber) {
  // mov $9,%eax; jmp L; mov %esi,%eax (a landing pad); L: syscall
  EXPECT_EQ(Follow({0xB8, 9, 0, 0, 0, 0xEB, 2, 0x89, 0xF0, 0x0F, 0x05}).number.kind(), Value::Kind::unknown);
}

TEST(PlanNumber, JumpFromOutsideMakesTheNumberUnknown) {
  const std::vector<std::uint8_t> bytes{0xB8, 9, 0, 0, 0, 0x0F, 0x05};
  const CodeView view = CodeView::of_bytes(base, bytes);
  const FunctionCode code = decode_function(view, x86_64, {base, base + bytes.size()}, true);
  const std::vector<std::uint64_t> entered{base + 5};
  EXPECT_EQ(NumberFlow(code, x86_64, entered).before(base + 5).registers[0].kind(), Value::Kind::unknown);
}

TEST(PlanNumber, UnresolvedIndirectJumpIntoALabel) {
  // mov $9,%eax; test %edi,%edi; je L; jmp *%rsi; L: syscall
  EXPECT_EQ(Follow({0xB8, 9, 0, 0, 0, 0x85, 0xFF, 0x74, 2, 0xFF, 0xE6, 0x0F, 0x05}).number.kind(),
            Value::Kind::unknown);
}

TEST(PlanNumber, Aarch64MovzAndOrr) {
  // movz x8,#222; svc #0; mov x8,x0; svc #0; movn w8,#0; movk ... not needed
  const std::vector<std::uint8_t> bytes{0xC8, 0x1B, 0x80, 0xD2, 0x01, 0x00, 0x00, 0xD4,
                                        0xE8, 0x03, 0x01, 0xAA, 0x01, 0x00, 0x00, 0xD4};
  const CodeView view = CodeView::of_bytes(base, bytes);
  const FunctionCode code = decode_function(view, aarch64, {base, base + bytes.size()}, true);
  const NumberFlow flow(code, aarch64);
  EXPECT_EQ(flow.before(base + 4).registers[8].single(), 222);
  EXPECT_EQ(flow.before(base + 12).registers[8].kind(), Value::Kind::entry_register);
  EXPECT_EQ(flow.before(base + 12).registers[8].entry_register(), 1);
}

}  // namespace
}  // namespace whomap
