// SPDX-License-Identifier: Apache-2.0
// Stubs executed in this process: results, what is handed over, and instructions that move.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <map>

#include "core/stub/move_code.h"
#include "core/stub/stub_code.h"

namespace whomap {
namespace {

/// Counts instead of handing over: after the call, one more in the counter of the number.
class Counting : public HandOver {
 public:
  Result<void> emit(CodeBuffer& code, std::uint32_t /*site*/, std::int64_t number) override {
    code.append(std::array<std::uint8_t, 2>{0x0F, 0x05});
    code.append(std::array<std::uint8_t, 2>{0x48, 0xB9});  // movabs $counter,%rcx
    std::array<std::uint8_t, 8> address{};
    const auto counter = reinterpret_cast<std::uint64_t>(&counts[number]);
    std::memcpy(address.data(), &counter, sizeof counter);
    code.append(address);
    code.append(std::array<std::uint8_t, 3>{0x48, 0xFF, 0x01});  // incq (%rcx)
    return {};
  }
  std::map<std::int64_t, std::uint64_t> counts;
};

/// A page of code that is filled before it becomes executable.
class CodePage {
 public:
  CodePage() : memory_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~CodePage() { ::munmap(memory_, size); }
  CodePage(const CodePage&) = delete;
  CodePage& operator=(const CodePage&) = delete;
  void write(std::uint64_t at, std::span<const std::uint8_t> bytes) const {
    std::memcpy(reinterpret_cast<void*>(at), bytes.data(), bytes.size());
  }
  void seal() const { ASSERT_EQ(::mprotect(memory_, size, PROT_READ | PROT_EXEC), 0); }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_); }
  static constexpr std::size_t size = 8192;

 private:
  void* memory_;
};

/// syscall(2) as glibc has it: the number and up to six arguments, the last one on the stack.
constexpr std::array<std::uint8_t, 26> dispatcher{
    0x48, 0x89, 0xF8, 0x48, 0x89, 0xF7, 0x48, 0x89, 0xD6, 0x48, 0x89, 0xCA,
    0x4D, 0x89, 0xC2, 0x4D, 0x89, 0xC8, 0x4C, 0x8B, 0x4C, 0x24, 0x08,  // mov 8(%rsp),%r9: room
    0x0F, 0x05,                                                        // syscall
    0xC3};
constexpr std::uint64_t room_at = 18, call_at = 23;

Site dispatcher_site(std::uint64_t base, std::vector<std::int64_t> numbers) {
  Site site;
  site.kind = NumberKind::variable;
  site.numbers = std::move(numbers);
  site.syscall_address = base + call_at;
  site.return_address = base + call_at + 2;
  site.stub.possible = true;
  site.stub.address = base + room_at;
  site.stub.length = 5;
  site.stub.code.assign(dispatcher.begin() + room_at, dispatcher.begin() + call_at);
  return site;
}

TEST(StubCode, CallsThatAreOursAreHandedOverAndTheOthersPass) {
  const CodePage page;
  page.write(page.address(), dispatcher);
  const Site site = dispatcher_site(page.address(), {SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk, SYS_mprotect,
                                                     SYS_madvise, SYS_shmat, SYS_shmdt});
  Counting counting;
  CodeBuffer code(page.address() + 4096);
  const auto jump = append_stub(code, site, counting);
  ASSERT_TRUE(jump) << to_line(jump.error());
  EXPECT_EQ(jump->original, site.stub.code);
  EXPECT_EQ(jump->jump.size(), jump->original.size());
  page.write(page.address() + 4096, code.bytes());
  page.write(jump->address, jump->jump);
  page.seal();

  const auto call = reinterpret_cast<long (*)(long, long, long, long, long, long, long)>(page.address());
  EXPECT_EQ(call(SYS_getppid, 0, 0, 0, 0, 0, 0), ::getppid());
  const long mapped = call(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_GT(mapped, 0);
  EXPECT_EQ(call(SYS_munmap, mapped, 4096, 0, 0, 0, 0), 0);
  EXPECT_EQ(call(SYS_munmap, 1, 4096, 0, 0, 0, 0), -EINVAL);
  EXPECT_EQ(call(SYS_shmdt, 1, 0, 0, 0, 0, 0), -EINVAL);
  // The kernel looks at the low half of rax only.
  EXPECT_EQ(call((7L << 32) | SYS_munmap, 1, 4096, 0, 0, 0, 0), -EINVAL);
  EXPECT_EQ(counting.counts, (std::map<std::int64_t, std::uint64_t>{{SYS_mmap, 1},
                                                                    {SYS_munmap, 3},
                                                                    {SYS_mremap, 0},
                                                                    {SYS_brk, 0},
                                                                    {SYS_mprotect, 0},
                                                                    {SYS_madvise, 0},
                                                                    {SYS_shmat, 0},
                                                                    {SYS_shmdt, 1}}));
}

TEST(StubCode, AConstantNumberNeedsNoTest) {
  constexpr std::array<std::uint8_t, 8> own_munmap{0xB8, 0x0B, 0, 0, 0, 0x0F, 0x05, 0xC3};
  const CodePage page;
  page.write(page.address(), own_munmap);
  Site site;
  site.kind = NumberKind::constant;
  site.number = SYS_munmap;
  site.syscall_address = page.address() + 5;
  site.return_address = page.address() + 7;
  site.stub.address = page.address();
  site.stub.length = 5;
  site.stub.code.assign(own_munmap.begin(), own_munmap.begin() + 5);
  Counting counting;
  CodeBuffer code(page.address() + 4096);
  const auto jump = append_stub(code, site, counting);
  ASSERT_TRUE(jump);
  page.write(page.address() + 4096, code.bytes());
  page.write(jump->address, jump->jump);
  page.seal();
  EXPECT_EQ(reinterpret_cast<long (*)(long, long)>(page.address())(1, 4096), -EINVAL);
  EXPECT_EQ(counting.counts[SYS_munmap], 1U);
}

TEST(StubCode, OutOfReachIsAnError) {
  Counting counting;
  CodeBuffer code(0x7F0000000000);
  EXPECT_FALSE(append_stub(code, dispatcher_site(0x400000, {SYS_mmap}), counting));
}

TEST(MoveCode, DisplacementsRelativeToRipFollow) {
  // mov 0x10(%rip),%rax at 0x1000 reads 0x1017; from 0x5000 the distance is -0x3FF0.
  constexpr std::array<std::uint8_t, 7> load{0x48, 0x8B, 0x05, 0x10, 0, 0, 0};
  const auto moved = move_code(load, 0x1000, 0x5000);
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, (std::vector<std::uint8_t>{0x48, 0x8B, 0x05, 0x10, 0xC0, 0xFF, 0xFF}));
  EXPECT_FALSE(move_code(load, 0x1000, 0x7F0000000000)) << "out of reach";
}

TEST(MoveCode, JumpsCallsAndHalfInstructionsStay) {
  const auto refused = [](std::initializer_list<std::uint8_t> code) {
    const std::vector<std::uint8_t> bytes(code);
    return !move_code(bytes, 0x1000, 0x2000);
  };
  EXPECT_TRUE(refused({0xE8, 0, 0, 0, 0}));            // call
  EXPECT_TRUE(refused({0xE9, 0, 0, 0, 0}));            // jmp
  EXPECT_TRUE(refused({0x75, 0x02}));                  // jne
  EXPECT_TRUE(refused({0xE3, 0x02}));                  // jrcxz
  EXPECT_TRUE(refused({0xFF, 0xE0}));                  // jmp *%rax
  EXPECT_TRUE(refused({0xC3}));                        // ret
  EXPECT_TRUE(refused({0xC7, 0xF8, 0, 0, 0, 0}));      // xbegin
  EXPECT_TRUE(refused({0xB8, 0x09, 0}));               // cut
  EXPECT_FALSE(refused({0xB8, 0x09, 0, 0, 0}));        // mov $9,%eax
  EXPECT_FALSE(refused({0x4C, 0x8B, 0x4C, 0x24, 8}));  // mov 8(%rsp),%r9
}

}  // namespace
}  // namespace whomap
