// SPDX-License-Identifier: Apache-2.0
#include "core/match/ledger.h"

#include <gtest/gtest.h>

#include <vector>

namespace whomap {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t fixed = 0x10, noreplace = 0x100000, hugetlb = 0x40000, growsdown = 0x100;
constexpr std::uint64_t enomem = static_cast<std::uint64_t>(-12);

/// Calls at times 1, 2, 3 ...: each returns before the next is entered.
class LedgerTest : public testing::Test {
 protected:
  CallEvent call(std::int64_t number, std::array<std::uint64_t, 6> arguments, std::uint64_t result) {
    CallEvent event;
    event.enter_ns = ++now_;
    event.exit_ns = ++now_;
    event.tid = 1;
    event.number = number;
    event.arguments = arguments;
    event.result = result;
    return event;
  }
  void mmap(std::uint64_t at, std::uint64_t length, std::uint32_t stack, std::uint64_t flags = 0x22) {
    ledger_.apply(call(9, {0, length, 3, flags, ~std::uint64_t{0}, 0}, at), stack);
  }
  void munmap(std::uint64_t at, std::uint64_t length) { ledger_.apply(call(11, {at, length}, 0), 99); }
  void mremap(std::uint64_t at, std::uint64_t old_length, std::uint64_t new_length, std::uint64_t result,
              std::uint32_t stack, std::uint64_t flags = 1) {
    ledger_.apply(call(25, {at, old_length, new_length, flags, result}, result), stack);
  }
  void brk(std::uint64_t asked, std::uint64_t result, std::uint32_t stack) {
    ledger_.apply(call(12, {asked}, result), stack);
  }

  /// "start-end:stack ..." in pages.
  [[nodiscard]] std::string state() const {
    std::string text;
    for (const auto& [start, interval] : ledger_.live()) {
      EXPECT_EQ(start, interval.range.start);
      text += (text.empty() ? "" : " ") + std::to_string(interval.range.start / page) + "-" +
              std::to_string(interval.range.end / page) + ":" + std::to_string(interval.stack);
    }
    return text;
  }

  Ledger ledger_;
  std::uint64_t now_ = 0;
};

TEST_F(LedgerTest, MapsAndUnmapsInTheMiddle) {
  mmap(10 * page, 8 * page, 1);
  munmap(12 * page, 2 * page);
  EXPECT_EQ(state(), "10-12:1 14-18:1");
}

TEST_F(LedgerTest, UnmapsAcrossSeveralAndOverUnknownGround) {
  mmap(10 * page, 2 * page, 1);
  mmap(14 * page, 2 * page, 2);
  mmap(16 * page, 2 * page, 3);
  munmap(11 * page, 6 * page);
  EXPECT_EQ(state(), "10-11:1 17-18:3");
  munmap(0, 5 * page);
  EXPECT_EQ(state(), "10-11:1 17-18:3");
}

TEST_F(LedgerTest, LengthsAreRoundedUpToPages) {
  mmap(10 * page, page + 1, 1);
  EXPECT_EQ(state(), "10-12:1");
  munmap(10 * page, 1);
  EXPECT_EQ(state(), "11-12:1");
}

TEST_F(LedgerTest, HugePagesRoundToTheirOwnSize) {
  mmap(512 * page, page, 1, 0x22 | hugetlb);
  EXPECT_EQ(state(), "512-1024:1");
  mmap(std::uint64_t{1} << 30, page, 2, 0x22 | hugetlb | (30ULL << 26));
  EXPECT_EQ(ledger_.live().rbegin()->second.range.size(), std::uint64_t{1} << 30);
}

TEST_F(LedgerTest, FixedReplaces) {
  mmap(10 * page, 8 * page, 1);
  mmap(12 * page, 2 * page, 2, 0x22 | fixed);
  EXPECT_EQ(state(), "10-12:1 12-14:2 14-18:1");
  EXPECT_EQ(ledger_.counts().conflicts, 0U);
}

TEST_F(LedgerTest, FixedNoReplaceProvesThatTheRangeWasFree) {
  mmap(10 * page, 8 * page, 1);
  mmap(12 * page, 2 * page, 2, 0x22 | fixed | noreplace);
  EXPECT_EQ(state(), "10-12:1 12-14:2 14-18:1");
  EXPECT_EQ(ledger_.counts().conflicts, 1U);
}

TEST_F(LedgerTest, FailuresChangeNothing) {
  mmap(10 * page, 2 * page, 1);
  mmap(enomem, 2 * page, 2);
  ledger_.apply(call(11, {10 * page, 2 * page}, static_cast<std::uint64_t>(-22)), 3);
  mremap(10 * page, 2 * page, 4 * page, enomem, 4);
  EXPECT_EQ(state(), "10-12:1");
  EXPECT_EQ(ledger_.counts().implausible, 0U);
}

TEST_F(LedgerTest, ResultsOfOtherCallsAreCountedNotApplied) {
  mmap(10 * page, 2 * page, 1);
  mmap(4711, page, 2);                                  // no page starts there
  mmap(~std::uint64_t{0} - 2 * page + 1, 4 * page, 2);  // wraps around
  ledger_.apply(call(11, {10 * page, 2 * page}, 77), 3);
  EXPECT_EQ(state(), "10-12:1");
  EXPECT_EQ(ledger_.counts().implausible, 3U);
}

// Logs without arguments: the kernel refuses a length of 0, so that one that succeeds is not known.
TEST_F(LedgerTest, WithoutALengthOnlyTheStartIsKnown) {
  mmap(10 * page, 2 * page, 1);
  ledger_.apply(call(9, {}, 20 * page), 2);
  ledger_.apply(call(9, {}, 22 * page), 3);
  ledger_.apply(call(11, {}, 0), 4);
  ledger_.apply(call(25, {}, 30 * page), 5);
  EXPECT_EQ(state(), "10-12:1");
  ASSERT_EQ(ledger_.unsized().size(), 2U);
  EXPECT_EQ(ledger_.counts().unknown_length, 2U);
  EXPECT_EQ(ledger_.counts().unknown_arguments, 2U);
  EXPECT_EQ(ledger_.counts().implausible, 0U);
  mmap(21 * page, 4 * page, 6);  // its range was free: what began at 22 is gone
  ASSERT_EQ(ledger_.unsized().size(), 1U);
  EXPECT_EQ(ledger_.unsized().begin()->first, 20 * page);
}

TEST_F(LedgerTest, RemapGrowsInPlaceForItsCaller) {
  mmap(10 * page, 2 * page, 1);
  mremap(10 * page, 2 * page, 5 * page, 10 * page, 2);
  EXPECT_EQ(state(), "10-12:1 12-15:2");
  mremap(10 * page, 5 * page, page, 10 * page, 3);
  EXPECT_EQ(state(), "10-11:1");
}

TEST_F(LedgerTest, RemapMovesWhatWasThereAndOwnsWhatItAdds) {
  mmap(10 * page, 2 * page, 1);
  mmap(12 * page, 2 * page, 2);
  mremap(10 * page, 4 * page, 6 * page, 100 * page, 3);
  EXPECT_EQ(state(), "100-102:1 102-104:2 104-106:3");
}

TEST_F(LedgerTest, RemapOfMemoryOlderThanTheTraceBelongsToItsCaller) {
  mremap(10 * page, 4 * page, 6 * page, 100 * page, 3);
  EXPECT_EQ(state(), "100-106:3");
}

TEST_F(LedgerTest, RemapShrinksWhileMoving) {
  mmap(10 * page, 4 * page, 1);
  mremap(10 * page, 4 * page, 2 * page, 50 * page, 2, 3);
  EXPECT_EQ(state(), "50-52:1");
}

TEST_F(LedgerTest, RemapFixedReplacesItsDestination) {
  mmap(10 * page, 2 * page, 1);
  mmap(20 * page, 4 * page, 2);
  mremap(10 * page, 2 * page, 2 * page, 21 * page, 3, 3);
  EXPECT_EQ(state(), "20-21:2 21-23:1 23-24:2");
}

TEST_F(LedgerTest, RemapDontUnmapAndOldLengthZeroLeaveTheOldMapping) {
  mmap(10 * page, 2 * page, 1);
  mremap(10 * page, 2 * page, 2 * page, 30 * page, 2, 5);
  mremap(10 * page, 0, 2 * page, 40 * page, 3);
  EXPECT_EQ(state(), "10-12:1 30-32:2 40-42:3");
}

TEST_F(LedgerTest, BreakGrowsAndShrinks) {
  ledger_.set_break(100 * page);
  brk(0, 100 * page, 1);
  brk(103 * page + 8, 103 * page + 8, 2);
  EXPECT_EQ(state(), "100-104:2");
  brk(200 * page, 103 * page + 8, 3);  // failed: the old break comes back
  EXPECT_EQ(state(), "100-104:2");
  brk(101 * page, 101 * page, 4);
  EXPECT_EQ(state(), "100-101:2");
}

TEST_F(LedgerTest, FirstBreakSeenIsOnlyTheBase) {
  brk(100 * page, 100 * page, 1);
  EXPECT_EQ(state(), "");
  EXPECT_EQ(ledger_.counts().unknown_break, 1U);
  brk(102 * page, 102 * page, 2);
  EXPECT_EQ(state(), "100-102:2");
}

TEST_F(LedgerTest, BreakThatWouldUnmapAnMmapIsAnotherCallsResult) {
  ledger_.set_break(100 * page);
  mmap(50 * page, page, 1);
  brk(110 * page, 3 * page, 2);
  EXPECT_EQ(state(), "50-51:1");
  EXPECT_EQ(ledger_.counts().implausible, 1U);
}

TEST_F(LedgerTest, SharedSegmentsHaveAnAddressAndNoLength) {
  ledger_.apply(call(30, {7, 0, 0}, 40 * page), 1);
  ASSERT_EQ(ledger_.unsized().size(), 1U);
  EXPECT_EQ(ledger_.unsized().begin()->second.stack, 1U);
  ledger_.apply(call(67, {40 * page}, 0), 2);
  EXPECT_TRUE(ledger_.unsized().empty());
}

TEST_F(LedgerTest, GrowsDownIsRemembered) {
  mmap(10 * page, page, 1, 0x22 | growsdown);
  EXPECT_TRUE(ledger_.live().begin()->second.grows_down);
}

CallEvent timed(std::int64_t number, std::array<std::uint64_t, 6> arguments, std::uint64_t result, pid_t tid,
                std::uint64_t enter, std::uint64_t exit) {
  return {enter, exit, tid, number, arguments, result, 0};
}

// Thread 2 unmaps, thread 1 gets the addresses and returns first.
TEST(LedgerOverlap, AnUnmapThatReturnsLateDoesNotCutTheNewOwner) {
  Ledger ledger;
  ledger.apply(timed(9, {0, 4 * page, 3, 0x22}, 10 * page, 1, 1, 2), 1);
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, 12, 14), 2);
  EXPECT_EQ(ledger.counts().conflicts, 1U);
  ledger.apply(timed(11, {10 * page, 4 * page}, 0, 2, 10, 20), 3);
  ASSERT_EQ(ledger.live().size(), 1U);
  EXPECT_EQ(ledger.live().begin()->second.stack, 2U);
  EXPECT_EQ(ledger.live().begin()->second.range, (AddressRange{10 * page, 12 * page}));
  EXPECT_EQ(ledger.counts().spared, 1U);
  // The owner's own unmap, entered later, does.
  ledger.apply(timed(11, {10 * page, 2 * page}, 0, 1, 30, 31), 3);
  EXPECT_TRUE(ledger.live().empty());
}

// The same where the old owner is older than the trace: there is no conflict to notice.
TEST(LedgerOverlap, AnUnmapOfUnknownGroundDoesNotCutTheNewOwner) {
  Ledger ledger;
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, 12, 14), 2);
  ledger.apply(timed(11, {10 * page, 4 * page}, 0, 2, 10, 20), 3);
  ASSERT_EQ(ledger.live().size(), 1U);
  EXPECT_EQ(ledger.live().begin()->second.stack, 2U);
}

TEST(LedgerOverlap, WithReturnTimesOnlyAConflictForetellsOneUnmap) {
  Ledger ledger;
  const auto at = [](std::uint64_t ms) { return ms * 1'000'000; };
  ledger.apply(timed(9, {0, 4 * page, 3, 0x22}, 10 * page, 1, at(1), at(1)), 1);
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, at(5), at(5)), 2);
  ledger.apply(timed(11, {10 * page, 4 * page}, 0, 2, at(6), at(6)), 3);
  ASSERT_EQ(ledger.live().size(), 1U);
  EXPECT_EQ(ledger.live().begin()->second.stack, 2U);
  ledger.apply(timed(11, {10 * page, 2 * page}, 0, 2, at(7), at(7)), 3);
  EXPECT_TRUE(ledger.live().empty());
}

TEST(LedgerOverlap, WithReturnTimesOnlyTheOwnersOwnUnmapCounts) {
  Ledger ledger;
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, 1, 1), 1);
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, 5, 5), 2);  // an unmap was lost
  ledger.apply(timed(11, {10 * page, 2 * page}, 0, 1, 6, 6), 3);
  EXPECT_TRUE(ledger.live().empty());
}

TEST(LedgerOverlap, ADetachThatReturnsLateDoesNotDetachTheNewSegment) {
  const auto detach = [](std::uint64_t at, std::uint64_t enter, std::uint64_t exit, pid_t tid) {
    return CallEvent{enter, exit, tid, 67, {at}, 0, 0};
  };
  const auto attach = [](std::uint64_t at, std::uint64_t enter, std::uint64_t exit, pid_t tid) {
    return CallEvent{enter, exit, tid, 30, {7}, at, 0};
  };
  for (const bool timed : {true, false}) {
    SCOPED_TRACE(timed);
    Ledger ledger;
    ledger.apply(attach(40 * page, 10, 10, 1), 1);
    ledger.apply(attach(40 * page, timed ? 25 : 30, 30, 2),
                 2);  // its address was free: 1 has detached already
    ledger.apply(detach(40 * page, timed ? 20 : 40, 40, 1), 3);
    ASSERT_EQ(ledger.unsized().size(), 1U);
    EXPECT_EQ(ledger.unsized().begin()->second.stack, 2U);
    ledger.apply(detach(40 * page, 50, 50, 2), 4);
    EXPECT_TRUE(ledger.unsized().empty());
  }
}

TEST(LedgerOverlap, AnUnmapThatReturnsLateDoesNotDetachASegment) {
  Ledger ledger;
  ledger.apply({10, 10, 1, 9, {0, 4 * page, 3, 0x22}, 40 * page, 0}, 1);
  ledger.apply({30, 30, 2, 30, {7}, 40 * page, 0}, 2);
  ledger.apply({40, 40, 1, 11, {40 * page, 4 * page}, 0, 0}, 3);
  EXPECT_EQ(ledger.unsized().size(), 1U);
  EXPECT_TRUE(ledger.live().empty());
}

TEST(LedgerOverlap, ARemapFindsWhatWasTakenFromUnderIt) {
  Ledger ledger;
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 1, 1, 2), 1);
  // Thread 1 moves it away; thread 2 gets the old addresses and returns before the mover does.
  ledger.apply(timed(9, {0, 2 * page, 3, 0x22}, 10 * page, 2, 11, 13), 2);
  ledger.apply(timed(25, {10 * page, 2 * page, 3 * page, 1}, 50 * page, 1, 10, 20), 3);
  std::string owners;
  for (const auto& [start, interval] : ledger.live())
    owners += std::to_string(start / page) + "+" + std::to_string(interval.range.size() / page) + ":" +
              std::to_string(interval.stack) + " ";
  EXPECT_EQ(owners, "10+2:2 50+2:1 52+1:3 ");
}

}  // namespace
}  // namespace whomap
