// SPDX-License-Identifier: Apache-2.0
// Code that moves, and stubs that run: in this process, behind a copy of glibc's syscall().
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "core/capture/ring.h"
#include "core/stub/move_code.h"
#include "core/stub/stub_code.h"
#include "core/stub/trap_engine.h"

namespace whomap {
namespace {

constexpr std::size_t page = 4096;

TEST(MoveCode, LeavesWhatDoesNotDependOnItsPlace) {
  const std::vector<std::uint8_t> code{0xB8, 9,    0,    0,    0,
                                       0x4C, 0x8B, 0x4C, 0x24, 8};  // mov $9,%eax; mov 8(%rsp),%r9
  EXPECT_EQ(move_code(code, 0x1000, 0x7F0000000000).value(), code);
}

TEST(MoveCode, AdjustsDistancesFromRip) {
  const std::vector<std::uint8_t> code{0x90, 0x48, 0x8B, 0x05, 0x10, 0, 0, 0};  // nop; mov 0x10(%rip),%rax
  const auto moved = move_code(code, 0x10000, 0x18000).value();
  std::int32_t distance = 0;
  std::memcpy(&distance, &moved[4], sizeof distance);
  EXPECT_EQ(distance, 0x10 - 0x8000);
  EXPECT_EQ(moved[0], 0x90);
}

TEST(MoveCode, RefusesWhatItCannotMove) {
  const std::vector<std::uint8_t> from_rip{0x48, 0x8B, 0x05, 0x10, 0, 0, 0};
  const std::vector<std::vector<std::uint8_t>> jumps{
      {0xE8, 0, 0, 0, 0}, {0xEB, 0}, {0x74, 2}, {0xE9, 0, 0, 0, 0}, {0xE3, 0}, {0xFF, 0xE0}, {0xC3}};
  EXPECT_FALSE(move_code(from_rip, 0x10000, 0x10000 + (std::uint64_t{3} << 30)));
  for (const auto& jump : jumps) EXPECT_FALSE(move_code(jump, 0x1000, 0x2000)) << int{jump[0]};
  EXPECT_FALSE(move_code(std::vector<std::uint8_t>{0x48, 0x8B}, 0x1000, 0x2000));  // cut in the middle
}

/// Runs the call and counts, with what is free after it.
class Counting : public HandOver {
 public:
  Result<void> emit(CodeBuffer& code, std::uint32_t, std::int64_t) override {
    code.append(std::array<std::uint8_t, 4>{0x0F, 0x05, 0x49, 0xBB});  // syscall; movabs $count,%r11
    code.append(std::array<std::uint8_t, 8>{});
    code.write64(code.bytes().size() - 8, reinterpret_cast<std::uint64_t>(&count));
    code.append(std::array<std::uint8_t, 10>{0x49, 0x8B, 0x0B,        // mov (%r11),%rcx
                                             0x48, 0x8D, 0x49, 0x01,  // lea 1(%rcx),%rcx
                                             0x49, 0x89, 0x0B});      // mov %rcx,(%r11)
    return {};
  }
  volatile std::uint64_t count = 0;
};

constexpr std::size_t size = std::size_t{1} << 20;

/// A copy of glibc's syscall() (2.36), and room for stubs near it.
class Sites : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = static_cast<std::uint8_t*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    std::copy(function_.begin(), function_.end(), memory_);
    site_.id = 3;
    site_.syscall_address = start() + 23;
    site_.return_address = start() + 25;
    site_.kind = NumberKind::variable;
    site_.stub = {true, "", start() + 18, 5, {function_.begin() + 18, function_.begin() + 23}};
  }
  void TearDown() override { ::munmap(memory_, size); }

  [[nodiscard]] std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(memory_); }
  [[nodiscard]] std::uint64_t room() const { return start() + page; }

  void install(CodeBuffer& code, HandOver& hand_over) {
    const auto jump = append_stub(code, site_, hand_over);
    ASSERT_TRUE(jump) << jump.error().happened;
    EXPECT_EQ(jump->original, site_.stub.code);
    std::copy(code.bytes().begin(), code.bytes().end(), memory_ + page);
    std::copy(jump->jump.begin(), jump->jump.end(), memory_ + 18);
  }

  /// Calls the copy with flags set and looks at those that it leaves; the last comparison in it changes none.
  long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
    long result = number;
    std::uint64_t flags = 0xCD5;  // carry, parity, adjust, zero, sign, direction off, overflow
    flags &= ~std::uint64_t{0x400 | 0x100};
    const std::uint64_t before = flags;
    register long r8 asm("r8") = d;
    register long r9 asm("r9") = e;
    asm volatile(
        "sub $128, %%rsp\n push %[f]\n push %[flags]\n popf\n call *%[function]\n pushf\n pop %[flags]\n lea "
        "136(%%rsp), %%rsp\n"
        : "=a"(result), [flags] "+&b"(flags), "+D"(number), "+S"(a), "+d"(b), "+c"(c), "+r"(r8), "+r"(r9)
        : [function] "r"(memory_), [f] "r"(f)
        : "r10", "r11", "memory", "cc");
    constexpr std::uint64_t arithmetic = 0x8D5;
    EXPECT_EQ(flags & arithmetic, before & arithmetic);
    return result;
  }

  /// mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10; mov %r9,%r8; mov 8(%rsp),%r9;
  /// syscall; ret
  static constexpr std::array<std::uint8_t, 26> function_{
      0x48, 0x89, 0xF8, 0x48, 0x89, 0xF7, 0x48, 0x89, 0xD6, 0x48, 0x89, 0xCA, 0x4D,
      0x89, 0xC2, 0x4D, 0x89, 0xC8, 0x4C, 0x8B, 0x4C, 0x24, 0x08, 0x0F, 0x05, 0xC3};
  std::uint8_t* memory_ = nullptr;
  Site site_;
};

TEST_F(Sites, VariableStubCountsItsNumbersOnly) {
  site_.numbers = {SYS_getpid, SYS_mmap, SYS_getegid, 1000};  // with short and long distances
  Counting counting;
  CodeBuffer code(room());
  install(code, counting);
  EXPECT_EQ(call(SYS_getppid), ::getppid());
  EXPECT_EQ(call(SYS_gettid), ::gettid());
  EXPECT_EQ(counting.count, 0U);
  EXPECT_EQ(call(SYS_getpid), ::getpid());
  EXPECT_EQ(call(SYS_getegid), static_cast<long>(::getegid()));
  EXPECT_EQ(counting.count, 2U);
  EXPECT_EQ(call(1000), -ENOSYS);
  EXPECT_EQ(counting.count, 3U);
  // The kernel looks at the lower half alone.
  EXPECT_EQ(call(static_cast<long>(0xFFFFFFFF00000000UL) | SYS_getpid), ::getpid());
  EXPECT_EQ(counting.count, 4U);
  EXPECT_EQ(call(SYS_kill, ::getpid(), 0), 0);
  EXPECT_EQ(counting.count, 4U);
}

TEST_F(Sites, ConstantStubCountsAll) {
  site_.kind = NumberKind::constant;
  site_.number = SYS_getpid;
  Counting counting;
  CodeBuffer code(room());
  install(code, counting);
  EXPECT_EQ(call(SYS_getpid), ::getpid());
  EXPECT_EQ(counting.count, 1U);
}

TEST_F(Sites, StubOutOfReachIsRefused) {
  site_.numbers = {SYS_getpid};
  Counting counting;
  CodeBuffer code(start() + (std::uint64_t{3} << 30));
  EXPECT_FALSE(append_stub(code, site_, counting));
}

std::uint64_t trapped_at = 0;
void on_trap(int, siginfo_t*, void* context) {
  trapped_at = static_cast<std::uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

TEST_F(Sites, TrapIsPassedUnlessItsWordSaysSo) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGTRAP, &action, &before), 0);
  site_.numbers = {SYS_getpid};
  const auto shape = RingShape::of({});
  ASSERT_TRUE(shape.has_value());
  TrapEngine engine(shape->bytes, page);
  CodeBuffer code(room());
  const std::uint64_t data = start() + 16 * page;
  ASSERT_TRUE(engine.begin(code, data));
  install(code, engine);
  ASSERT_EQ(engine.traps().size(), 1U);
  const TrapPoint trap = engine.traps().front();
  EXPECT_EQ(trap.site, 3U);
  EXPECT_EQ(trap.number, SYS_getpid);
  auto* const byte = reinterpret_cast<std::uint8_t*>(trap.address);
  auto* const words = reinterpret_cast<TrapWords*>(data + engine.data_size() - page);
  ASSERT_EQ(*byte, 0x90);
  for (const std::uint8_t each : std::array<std::uint8_t, 2>{0x90, 0xCC}) {
    *byte = each;
    // Not armed; armed for the calls under way; the call of a forked child that finds its words wiped; armed.
    for (const TrapWords& now : {TrapWords{0, 0}, TrapWords{1, 0}, TrapWords{0, 1}, TrapWords{1, 1}}) {
      *words = now;
      trapped_at = 0;
      EXPECT_EQ(call(SYS_getpid), ::getpid());
      const bool passed = each == 0xCC && now.armed == 1 && now.entered == 1;
      EXPECT_EQ(trapped_at, passed ? trap.address + 1 : 0);
    }
  }
  EXPECT_EQ(call(SYS_getppid), ::getppid());
  ::sigaction(SIGTRAP, &before, nullptr);
}

// What replaces memory is needed whatever its length.
TEST_F(Sites, ShortMapsMeetNoTrap) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGTRAP, &action, &before), 0);
  site_.numbers = {SYS_mmap};
  const auto shape = RingShape::of({});
  ASSERT_TRUE(shape.has_value());
  TrapEngine engine(shape->bytes, page);
  CodeBuffer code(room());
  const std::uint64_t data = start() + 16 * page;
  ASSERT_TRUE(engine.begin(code, data));
  install(code, engine);
  ASSERT_EQ(engine.traps().size(), 1U);
  *reinterpret_cast<std::uint8_t*>(engine.traps().front().address) = 0xCC;
  *reinterpret_cast<TrapWords*>(data + engine.data_size() - page) = {1, 1};
  *reinterpret_cast<std::uint64_t*>(data + WHOMAP_SETTINGS_MINIMUM_LENGTH) = 2 * page;
  void* const old = ::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto at = reinterpret_cast<long>(old);
  struct Case {
    long address, length, flags;
    bool met;
  };
  for (const Case& each :
       {Case{0, page, 0, false}, Case{0, 2 * page, 0, true}, Case{at, page, MAP_FIXED, true}}) {
    trapped_at = 0;
    const long got =
        call(SYS_mmap, each.address, each.length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | each.flags, -1, 0);
    ASSERT_GT(got, 0);
    EXPECT_EQ(trapped_at != 0, each.met) << each.length;
    ::munmap(reinterpret_cast<void*>(got), static_cast<std::size_t>(each.length));
  }
  ::sigaction(SIGTRAP, &before, nullptr);
}

// C libraries make them with SIGTRAP blocked, where an int3 would be the end.
TEST_F(Sites, SomeCallsMeetNoTrap) {
  const auto shape = RingShape::of({});
  ASSERT_TRUE(shape.has_value());
  TrapEngine engine(shape->bytes, page);
  site_.numbers = {SYS_munmap, SYS_madvise};
  CodeBuffer code(room());
  ASSERT_TRUE(engine.begin(code, start() + 16 * page));
  install(code, engine);
  EXPECT_TRUE(engine.traps().empty());
}

}  // namespace
}  // namespace whomap
