// SPDX-License-Identifier: Apache-2.0
// The code that records calls, run in this process: what it leaves as it was, and what it writes.
#include <Zydis/Zydis.h>

#include "ring_support.h"

namespace whomap::test {
namespace {

constexpr std::uint64_t carry = 1, parity = 4, adjust = 0x10, zero = 0x40, sign = 0x80, direction = 0x400,
                        overflow = 0x800, alignment_check = 0x40000, always_set = 0x202;

/// An mmap of a page with every register that is not its argument set to something of its own.
RecordedCall call_with_marks(const RingInProcess& target) {
  RecordedCall call;
  call.rax = SYS_mmap;
  call.rdi = 0;
  call.rsi = 4096;
  call.rdx = PROT_READ;
  call.r10 = MAP_PRIVATE | MAP_ANONYMOUS;
  call.r8 = static_cast<std::uint64_t>(-1);
  call.r9 = 0x5000;
  call.rbx = 0xB0B0B0B0B0B0B0B0;
  call.rbp = 0xB1B1B1B1B1B1B1B1;
  call.r12 = 0xC2C2C2C2C2C2C2C2;
  call.r13 = 0xC3C3C3C3C3C3C3C3;
  call.r14 = 0xC4C4C4C4C4C4C4C4;
  call.r15 = 0xC5C5C5C5C5C5C5C5;
  call.code = target.entry(SYS_mmap);
  return call;
}

void expect_untouched(const RecordedCall& before, const RecordedCall& after) {
  EXPECT_EQ(after.rbx, before.rbx);
  EXPECT_EQ(after.rdx, before.rdx);
  EXPECT_EQ(after.rsi, before.rsi);
  EXPECT_EQ(after.rdi, before.rdi);
  EXPECT_EQ(after.rbp, before.rbp);
  EXPECT_EQ(after.r8, before.r8);
  EXPECT_EQ(after.r9, before.r9);
  EXPECT_EQ(after.r10, before.r10);
  EXPECT_EQ(after.r12, before.r12);
  EXPECT_EQ(after.r13, before.r13);
  EXPECT_EQ(after.r14, before.r14);
  EXPECT_EQ(after.r15, before.r15);
  EXPECT_EQ(after.flags, before.flags);
  EXPECT_EQ(after.red_zone_changes, 0U);
}

TEST(RingRecord, KeepsEveryRegisterFlagAndTheRedZone) {
  RingInProcess target;
  RingReader reader = target.reader();
  struct State {
    ArmedState armed;
    std::uint64_t minimum_length;
    std::size_t expected;
  };
  for (const State& state : {State{ArmedState::off, 0, 0}, State{ArmedState::recording, 0, 1},
                             State{ArmedState::recording, 8192, 0}, State{ArmedState::finishing, 0, 0}}) {
    target.settings().minimum_length = state.minimum_length;
    target.arm(state.armed);
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::uint64_t flags = always_set;
      const std::uint64_t all_flags[] = {carry, parity,    adjust,   zero,
                                         sign,  direction, overflow, alignment_check};
      for (unsigned i = 0; i < 8; ++i)
        if (bits >> i & 1U) flags |= all_flags[i];
      RecordedCall call = call_with_marks(target);
      call.flags = flags;
      const RecordedCall before = call;
      whomap_test_call(&call);
      expect_untouched(before, call);
      ASSERT_LT(call.rax, 0x8000'0000'0000U);
      ASSERT_EQ(::munmap(reinterpret_cast<void*>(call.rax), 4096), 0);
      EXPECT_EQ(all(reader).size(), state.expected);
    }
  }
  EXPECT_EQ(target.inside(), 0U);
  EXPECT_EQ(target.control().too_short, 256U);
  EXPECT_EQ(target.control().too_short_bytes, 256U * 4096);
}

TEST(RingRecord, WritesWhatTheCallWas) {
  RingInProcess target;
  RingReader reader = target.reader({.thread_of = [](std::uint64_t base, std::uint64_t) {
    return base == thread_base() ? ::gettid() : 0;
  }});
  target.arm(ArmedState::recording);
  RecordedCall call = call_with_marks(target);
  const RecordedCall before = call;
  const std::uint64_t start = monotonic_ns();
  whomap_test_call(&call);
  const std::uint64_t end = monotonic_ns();
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 1U);
  const CallEvent& event = captures[0].capture.event;
  EXPECT_EQ(event.number, SYS_mmap);
  EXPECT_EQ(event.site, target.site(SYS_mmap));
  EXPECT_EQ(event.arguments, (std::array<std::uint64_t, 6>{before.rdi, before.rsi, before.rdx, before.r10,
                                                           before.r8, before.r9}));
  EXPECT_EQ(event.result, call.rax);
  EXPECT_EQ(event.tid, ::gettid());
  constexpr std::uint64_t clock_tolerance_ns = 5'000;
  EXPECT_GE(event.enter_ns + clock_tolerance_ns, start);
  EXPECT_LT(event.enter_ns, event.exit_ns);
  EXPECT_LE(event.exit_ns, end + clock_tolerance_ns);
  const Registers& registers = captures[0].capture.registers;
  EXPECT_EQ(registers.rip, site_return_address);
  EXPECT_EQ(registers.rbx, before.rbx);
  EXPECT_EQ(registers.rbp, before.rbp);
  EXPECT_EQ(registers.r12, before.r12);
  EXPECT_EQ(registers.r13, before.r13);
  EXPECT_EQ(registers.r14, before.r14);
  EXPECT_EQ(registers.r15, before.r15);
  // The trampoline called the stub with the call's address on the stack and its own above.
  const StackCopy& stack = captures[0].capture.stack;
  EXPECT_EQ(stack.address, registers.rsp);
  ASSERT_GE(stack.bytes.size(), 16U);
  std::uint64_t second = 0;
  std::memcpy(&second, stack.bytes.data() + 8, sizeof second);
  EXPECT_EQ(second, reinterpret_cast<std::uint64_t>(&call));
  ::munmap(reinterpret_cast<void*>(call.rax), 4096);
}

TEST(RingRecord, FailedCallsAreRecorded) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  EXPECT_EQ(target.unmap_memory(1, 4096), static_cast<std::uint64_t>(-EINVAL));
  EXPECT_EQ(target.map_memory(0), static_cast<std::uint64_t>(-EINVAL));
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 2U);
  for (const RingCapture& capture : captures)
    EXPECT_EQ(capture.capture.event.result, static_cast<std::uint64_t>(-EINVAL));
}

TEST(RingRecord, TheOldContentOfEveryByteOfTheStackIsCopied) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  alignas(64) std::array<std::uint64_t, 8192> stack;
  for (std::size_t i = 0; i < stack.size(); ++i) stack[i] = i * 0x0101'0101'0101'0101U;
  for (std::size_t offset = 0; offset < 16; ++offset) {
    RecordedCall call = call_with_marks(target);
    call.stack = reinterpret_cast<std::uint64_t>(&stack[4096 + offset]);
    whomap_test_call(&call);
    ::munmap(reinterpret_cast<void*>(call.rax), 4096);
    const auto captures = all(reader);
    ASSERT_EQ(captures.size(), 1U);
    const auto& copy = captures[0].capture.stack;
    EXPECT_EQ(captures[0].stack_end, StackEnd::capacity);
    ASSERT_EQ(copy.bytes.size(), 4096U);
    EXPECT_EQ(copy.address, call.stack - 16);
    EXPECT_EQ(std::memcmp(copy.bytes.data() + 16, reinterpret_cast<void*>(call.stack), 4080), 0);
  }
}

TEST(RingRecord, ShortMapsAreCountedAndUnmapsAlwaysRecorded) {
  RingInProcess target;
  target.settings().minimum_length = 0x10000;
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  const std::uint64_t small = target.map_memory(0x1000), large = target.map_memory(0x10000);
  target.unmap_memory(small, 0x1000);
  target.unmap_memory(large, 0x10000);
  target.call(SYS_brk, 0);
  EXPECT_EQ(all(reader).size(), 4U);
  EXPECT_EQ(target.control().too_short, 1U);
  EXPECT_EQ(target.control().too_short_bytes, 0x1000U);
}

// It takes memory away from whoever had it, which the ledger has to know of.
TEST(RingRecord, MapsAtAFixedPlaceAreNeverLeftOut) {
  RingInProcess target({.slot_count = 1024, .stack_bytes = 64, .range_capacity = 1000},
                       {.tsc_usable = true, .thread_base_usable = true, .rate_limited = true});
  target.settings().minimum_length = 0x10000;
  RingReader reader = target.reader({.calls_per_second = 0});
  target.arm(ArmedState::recording);
  const std::uint64_t at = target.map_memory(0x1000);
  RecordedCall call = call_with_marks(target);
  call.rdi = at;
  call.rsi = 0x1000;
  call.r10 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  whomap_test_call(&call);
  EXPECT_EQ(call.rax, at);
  EXPECT_EQ(all(reader).size(), 1U);
  EXPECT_EQ(target.control().too_short, 1U);
  EXPECT_EQ(reader.counts().over_rate, 0U);
  target.unmap_memory(at, 0x1000);
}

TEST(RingRecord, SamplingTakesOneMapPerInterval) {
  RingInProcess target({.slot_count = 1024, .stack_bytes = 64, .range_capacity = 1000},
                       {.tsc_usable = true, .thread_base_usable = true, .sample_interval = 0x11000});
  EXPECT_EQ(target.settings().sample_interval, 0x10000U);
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  for (int i = 0; i < 160; ++i) ::munmap(reinterpret_cast<void*>(target.map_memory(0x1000)), 0x1000);
  EXPECT_EQ(all(reader).size(), 10U);
  EXPECT_EQ(target.control().not_sampled, 150U);
  EXPECT_EQ(target.control().not_sampled_bytes, 150U * 0x1000);
  ::munmap(reinterpret_cast<void*>(target.map_memory(0x20000)), 0x20000);
  EXPECT_EQ(target.map_memory(~std::uint64_t{0}), static_cast<std::uint64_t>(-ENOMEM));
  EXPECT_EQ(all(reader).size(), 2U);
}

TEST(RingRecord, TheRateLimitHoldsButForWhatTheLedgerNeeds) {
  RingInProcess target({.slot_count = 1024, .stack_bytes = 64, .range_capacity = 1000},
                       {.tsc_usable = true, .thread_base_usable = true, .rate_limited = true});
  RingReader reader = target.reader({.calls_per_second = 100});
  std::uint64_t now = 1'000'000'000;
  const auto count = [&] { return all(reader, now).size(); };
  EXPECT_EQ(count(), 0U);
  target.arm(ArmedState::recording);
  for (int i = 0; i < 50; ++i) target.call(SYS_getppid);
  for (int i = 0; i < 5; ++i) target.call(SYS_brk, 0);
  EXPECT_EQ(count(), 15U);
  EXPECT_EQ(reader.counts().over_rate, 40U);
  now += 30'000'000;
  EXPECT_EQ(count(), 0U);
  for (int i = 0; i < 50; ++i) target.call(SYS_getppid);
  EXPECT_EQ(count(), 3U);
  EXPECT_EQ(reader.counts().over_rate, 87U);
}

TEST(RingRecord, FinishingRecordsNothingNew) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(ArmedState::finishing);
  target.call(SYS_getppid);
  EXPECT_TRUE(all(reader).empty());
}

TEST(RingRecord, WithoutAUsableTscOnlyClaimsOrderTheCalls) {
  RingInProcess target({.slot_count = 64, .stack_bytes = 64, .range_capacity = 1000}, {});
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  target.call(SYS_getppid);
  target.call(SYS_getppid);
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 2U);
  EXPECT_EQ(captures[0].capture.event.enter_ns, 0U);
  EXPECT_EQ(captures[0].capture.event.exit_ns, 0U);
  EXPECT_EQ(captures[0].thread_base, 0U);
  EXPECT_LT(captures[0].claim, captures[1].claim);
}

TEST(RingRecord, TheCodeKeepsToWhatItMayDo) {
  CodeBuffer code(0x10000);
  ASSERT_TRUE(RingHandOver(0x20000).emit(code, 1, 9));
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  const std::size_t end = code.bytes().size() - WHOMAP_LITERAL_BYTES;
  int syscalls = 0;
  for (std::size_t at = 0; at < end;) {
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    ASSERT_TRUE(ZYAN_SUCCESS(
        ZydisDecoderDecodeFull(&decoder, code.bytes().data() + at, end - at, &instruction, operands)))
        << at;
    at += instruction.length;
    syscalls += instruction.mnemonic == ZYDIS_MNEMONIC_SYSCALL ? 1 : 0;
    const auto category = instruction.meta.category;
    EXPECT_NE(category, ZYDIS_CATEGORY_CALL) << at;
    EXPECT_NE(category, ZYDIS_CATEGORY_RET) << at;
    EXPECT_NE(category, ZYDIS_CATEGORY_PUSH) << at;
    EXPECT_NE(category, ZYDIS_CATEGORY_POP) << at;
    EXPECT_NE(category, ZYDIS_CATEGORY_STRINGOP) << at;
    EXPECT_NE(category, ZYDIS_CATEGORY_INTERRUPT) << at;
    for (std::size_t i = 0; i < instruction.operand_count_visible; ++i) {
      const ZydisDecodedOperand& operand = operands[i];
      const bool branch = category == ZYDIS_CATEGORY_UNCOND_BR || category == ZYDIS_CATEGORY_COND_BR;
      if (branch) {
        EXPECT_EQ(operand.type, ZYDIS_OPERAND_TYPE_IMMEDIATE) << at;
      }
      if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
        const auto kind = ZydisRegisterGetClass(operand.reg.value);
        EXPECT_TRUE(kind == ZYDIS_REGCLASS_GPR8 || kind == ZYDIS_REGCLASS_GPR32 ||
                    kind == ZYDIS_REGCLASS_GPR64)
            << at;
        const auto whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
        // What it writes: its own three registers, and rdx around rdtsc.
        if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0) {
          EXPECT_TRUE(whole == ZYDIS_REGISTER_RAX || whole == ZYDIS_REGISTER_RCX ||
                      whole == ZYDIS_REGISTER_R11 || whole == ZYDIS_REGISTER_RDX)
              << at;
        }
      }
      // Nothing is written through rsp.
      if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RSP) {
        EXPECT_EQ(operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE, 0) << at;
      }
    }
  }
  EXPECT_EQ(syscalls, 2);
}

TEST(RingRecord, JumpsReachTwoGibibytesAndNoFurther) {
  CodeBuffer code(0x100000000);
  EXPECT_TRUE(code.jump_to(0x100000000 + 5 + 0x7FFFFFFF));
  EXPECT_EQ(code.bytes(), (std::vector<std::uint8_t>{0xE9, 0xFF, 0xFF, 0xFF, 0x7F}));
  EXPECT_FALSE(code.jump_to(0x100000000 + 10 + 0x80000000));
  EXPECT_EQ(code.bytes().size(), 5U);
}

}  // namespace
}  // namespace whomap::test
