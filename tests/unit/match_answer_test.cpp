// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

class Match : public MatchTest {};

bool says(const Answer& answer, std::string_view part) {
  return answer.verdict_text.find(part) != std::string::npos;
}

// D02: four raw mmaps below an older neighbour, merged by the kernel into one region.
TEST_F(Match, MergedMappingsAreTheirStacks) {
  constexpr std::uint64_t end = area + 100 * mib;
  stacks_ = {make_stack(1, {{"libc.so.6", "syscall"}, {"libleak.so", "leak"}, {"app", "main"}})};
  snapshots_.push_back(snapshot(region(end - (12 << 10), end, 12 << 10), 0, mib));
  std::uint64_t at = end - (12 << 10);
  std::uint64_t ms = 1000;
  for (const std::uint64_t kib : {64, 128, 192, 256}) {
    at -= kib << 10;
    mmap(at, kib << 10, 1, ms += 2000);
  }
  snapshots_.push_back(snapshot(region(at, end, 652 << 10), 10'000, 2 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.mapped_bytes, 640U << 10);
  EXPECT_EQ(answer.growth.explained_bytes, 640U << 10);
  EXPECT_EQ(answer.verdict_class, "leak");
  EXPECT_TRUE(says(answer, "leak (libleak.so)")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "4 mmap calls")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "cannot tell a leak from a cache")) << answer.verdict_text;
  ASSERT_EQ(answer.stacks.size(), 1U);
  EXPECT_EQ(answer.stacks[0].live_calls, 4U);
  EXPECT_EQ(answer.stacks[0].resident_bytes, 640U << 10);
  EXPECT_DOUBLE_EQ(answer.stacks[0].share, 1.0);
  EXPECT_DOUBLE_EQ(answer.stacks[0].bytes_per_minute, 6.0 * (640 << 10));
  ASSERT_EQ(answer.regions.size(), 1U);
  EXPECT_EQ(answer.regions[0].size_delta, 640 << 10);
  EXPECT_EQ(answer.regions[0].rss_delta, 640 << 10);
  EXPECT_EQ(answer.regions[0].stacks, std::vector<std::uint32_t>{1});
  EXPECT_EQ(answer_status(answer), ExitStatus::done);
}

// D04: a split is no growth.
TEST_F(Match, ASplitRegionGrewNothing) {
  const std::uint64_t end = area + (std::uint64_t{6156} << 10);
  snapshots_.push_back(snapshot(region(area, end, 6144 << 10), 0, 6 * mib));
  std::string text;
  for (std::uint64_t at = area; at < end; at += 2052 << 10)
    text += region(at, at + (16 << 10), 16 << 10) + region(at + (16 << 10), at + (2052 << 10), 2036 << 10);
  snapshots_.push_back(snapshot(text, 10'000, 6 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.mapped_bytes, 0U);
  EXPECT_EQ(answer.verdict_class, "not-growing");
  EXPECT_EQ(answer_status(answer), ExitStatus::negative);
}

// A slow leak beside balanced traffic through the same function, 200 times as many bytes.
TEST_F(Match, ALeakInBalancedTraffic) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "get_buffer"}, {"app", "main"}}),
             make_stack(2, {{"libc.so.6", "munmap"}, {"app", "put_buffer"}, {"app", "main"}})};
  snapshots_.push_back(snapshot(region(0x1000, 0x2000, page), 0, mib));
  std::uint64_t leaked = 0;
  for (std::uint64_t ms = 1; ms < 9'900; ms += 5) {
    const std::uint64_t scratch = area + 50 * mib;
    mmap(scratch, 64 * page, 1, ms);
    munmap(scratch, 64 * page, 2, ms + 1);
    if (ms % 100 == 1) mmap(area + page * 16 * leaked++, 16 * page, 1, ms + 2);
  }
  snapshots_.push_back(
      snapshot(region(0x1000, 0x2000, page) + region(area, area + leaked * 16 * page, leaked * page), 10'000,
               8 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "leak");
  EXPECT_TRUE(says(answer, "get_buffer (app)")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, fmt::format("{} of 2,0", leaked))) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "uses up addresses rather than memory")) << answer.verdict_text;
  EXPECT_EQ(answer.stacks[0].growth_bytes, leaked * 16 * page);
  EXPECT_EQ(answer.stacks[0].resident_bytes, leaked * page);
  EXPECT_EQ(answer.stacks[1].verdict, "not-growing");
}

// A table of 16 MiB is replaced by another once; a leak fills the hole that it left.
TEST_F(Match, WhatOnlyReplacesIsSaidToBe) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "replace_table"}, {"app", "main"}}),
             make_stack(2, {{"libc.so.6", "munmap"}, {"app", "replace_table"}, {"app", "main"}}),
             make_stack(3, {{"libc.so.6", "mmap64"}, {"app", "leaker"}, {"app", "main"}})};
  constexpr std::uint64_t old_table = area, new_table = area + 64 * mib;
  snapshots_.push_back(snapshot(region(old_table, old_table + 16 * mib, 16 * mib), 0, 16 * mib));
  mmap(new_table, 16 * mib, 1, 100);
  munmap(old_table, 16 * mib, 2, 101);
  for (std::uint64_t i = 0; i < 6; ++i) mmap(old_table + i * mib, mib, 3, 200 + 1'500 * i);
  snapshots_.push_back(snapshot(
      region(old_table, old_table + 6 * mib, 6 * mib) + region(new_table, new_table + 16 * mib, 16 * mib),
      10'000, 22 * mib));
  const Answer answer = match();
  EXPECT_TRUE(
      says(answer, "10 MiB that were mapped before went away: the net is +6 MiB, RssAnon +6 MiB"))
      << answer.verdict_text;
}

TEST_F(Match, BalancedTrafficIsChurn) {
  stacks_ = {make_stack(1, {{"libc.so.6", "syscall"}, {"libucm.so.0", "ucm_mmap"}, {"app", "get"}}),
             make_stack(2, {{"libc.so.6", "syscall"}, {"libucm.so.0", "ucm_munmap"}, {"app", "put"}}),
             make_stack(3, {{"libc.so.6", "mmap64"}, {"app", "get2"}})};
  snapshots_.push_back(snapshot(region(0x1000, 0x2000, page), 0, mib));
  for (std::uint64_t ms = 1; ms < 9'900; ms += 5) {
    mmap(area, 64 * page, ms % 2 == 0 ? 1 : 3, ms);
    munmap(area, 64 * page, 2, ms + 1);
  }
  mmap(area, 64 * page, 3, 9'999);  // on its way when the snapshot was taken
  snapshots_.push_back(
      snapshot(region(0x1000, 0x2000, page) + region(area, area + 64 * page, page), 10'000, mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "churn") << answer.verdict_text;
  EXPECT_EQ(answer_status(answer), ExitStatus::negative);
  for (const StackAnswer& row : answer.stacks) {
    const std::string expected = row.stack.id == 1   ? "pass-through"
                                 : row.stack.id == 3 ? "churn"
                                                     : "not-growing";
    EXPECT_EQ(row.verdict, expected) << row.stack.id;
  }
}

TEST_F(Match, TheFirstInvestigation) {
  stacks_ = {make_stack(1, {{"libc.so.6", "syscall"},
                            {"libucm.so.0", "ucm_orig_mmap_syscall"},
                            {"libucs.so.0", ""},
                            {"libucs.so.0", "ucs_mpool_grow"},
                            {"libucs.so.0", "ucs_mpool_get_grow"},
                            {"libucs.so.0", ""},
                            {"libucm.so.0", "ucm_event_dispatch"},
                            {"libucm.so.0", "ucm_munmap"},
                            {"app", "scratch_put"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 50; ++i) mmap(area + i * mib, mib, 1, 100 + i * 190);
  snapshots_.push_back(snapshot(region(area, area + 50 * mib, 50 * mib), 10'000, 51 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "leak");
  EXPECT_TRUE(says(answer, "ucs_mpool_grow (libucs.so.0) maps memory that stays mapped"))
      << answer.verdict_text;
  EXPECT_TRUE(says(answer, "made inside ucm_munmap")) << answer.verdict_text;
}

TEST_F(Match, HeapGrownByBrk) {
  constexpr std::uint64_t heap = 0x550000000000;
  stacks_ = {make_stack(1, {{"libc.so.6", "__brk"},
                            {"libc.so.6", "sbrk"},
                            {"libc.so.6", "sysmalloc"},
                            {"libc.so.6", "malloc"},
                            {"app", "fill"}})};
  snapshots_.push_back(snapshot(region(heap, heap + mib, mib, "[heap]"), 0, mib));
  for (std::uint64_t i = 0; i < 20; ++i)
    call(12, {heap + mib + (i + 1) * 0x21000}, heap + mib + (i + 1) * 0x21000, 1, 400 * i);
  call(12, {heap + (mib << 20)}, heap + mib + 20 * 0x21000, 1, 9'000);  // refused
  const std::uint64_t end = heap + mib + 20 * 0x21000;
  snapshots_.push_back(snapshot(region(heap, end, end - heap, "[heap]"), 10'000, 4 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.unexplained_bytes, 0U);
  EXPECT_EQ(answer.verdict_class, "malloc");
  EXPECT_TRUE(says(answer, "fill (app) allocates through malloc")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "heap profiler")) << answer.verdict_text;
  EXPECT_EQ(answer.failed_calls, 1U);
  EXPECT_EQ(answer.regions[0].kind, "heap");
}

// D03: stacks of threads that exited and were never joined.
TEST_F(Match, StacksOfExitedThreads) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"},
                            {"libc.so.6", "allocate_stack"},
                            {"libc.so.6", "pthread_create"},
                            {"app", "attach_interrupt"}})};
  snapshots_.push_back(snapshot("", 0, mib, 0, 7));
  constexpr std::uint64_t size = 8 * mib + page;
  std::string text;
  for (std::uint64_t i = 0; i < 20; ++i) {
    mmap(area + i * size, size, 1, 100 + i * 480);
    text += region(area + i * size, area + i * size + page, 0, "", "---p") +
            region(area + i * size + page, area + (i + 1) * size, 8192);
  }
  snapshots_.push_back(snapshot(text, 10'000, 2 * mib, 0, 7));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "thread-stacks");
  EXPECT_TRUE(says(answer, "attach_interrupt")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "7 before, 7 after")) << answer.verdict_text;
  EXPECT_EQ(answer.regions[0].kind, "thread-stack");
  EXPECT_EQ(answer.growth.unexplained_bytes, 0U);
}

// D05 (b): an older reservation filled by touching; no call is hit.
TEST_F(Match, AReservationBeingFilled) {
  snapshots_.push_back(snapshot(region(area, area + 64 * mib, 0, "", "---p"), 0, mib));
  snapshots_.push_back(snapshot(
      region(area, area + 40 * mib, 40 * mib) + region(area + 40 * mib, area + 64 * mib, 0, "", "---p"),
      10'000, 41 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "reservation");
  EXPECT_TRUE(says(answer, "RssAnon grew by 40 MiB")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "glibc-arena")) << answer.verdict_text;
  EXPECT_EQ(answer_status(answer), ExitStatus::done);
}

TEST_F(Match, AddressesReservedWithoutAccess) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "reserve"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  call(9, {0, 1024 * mib, 0, 0x4022, ~std::uint64_t{0}, 0}, area, 1, 500);
  snapshots_.push_back(snapshot(region(area, area + 1024 * mib, 0, "", "---p"), 10'000, mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "reservation");
  EXPECT_TRUE(says(answer, "reserve (app)")) << answer.verdict_text;
}

TEST_F(Match, FilePagesBecomingResident) {
  const auto file = [&](std::uint64_t rss) {
    return fmt::format("{:x}-{:x} r--s 00000000 08:01 77 /data/index\nRss: {} kB\n", area, area + 100 * mib,
                       rss / 1024);
  };
  snapshots_.push_back(snapshot(file(mib), 0, mib, mib));
  snapshots_.push_back(snapshot(file(80 * mib), 10'000, mib, 80 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "file-pages");
  EXPECT_TRUE(says(answer, "/data/index")) << answer.verdict_text;
}

TEST_F(Match, AllGrowthAtTheStartIsAPlateau) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "warm_up"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 10; ++i) mmap(area + i * mib, mib, 1, 10 + i);
  snapshots_.push_back(snapshot(region(area, area + 10 * mib, 10 * mib), 60'000, 11 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "plateau");
  EXPECT_EQ(answer_status(answer), ExitStatus::done);
}

TEST_F(Match, NoSiteWasHit) {
  snapshots_.push_back(snapshot("", 0, mib));
  snapshots_.push_back(snapshot(region(area, area + 10 * mib, 10 * mib), 10'000, 11 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "no-site");
  EXPECT_TRUE(says(answer, "no watched instruction was hit")) << answer.verdict_text;
  EXPECT_EQ(answer.growth.unexplained_bytes, 10 * mib);
  ASSERT_EQ(answer.unexplained.size(), 1U);
  EXPECT_EQ(answer_status(answer), ExitStatus::negative);
}

TEST_F(Match, WhatNoStackExplainsIsSaidByKind) {
  constexpr std::uint64_t stack_end = 0x7ffc00000000;
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot(region(stack_end - mib, stack_end, page, "[stack]"), 0, mib));
  for (std::uint64_t i = 0; i < 4; ++i) mmap(area + i * mib, mib, 1, 2000 * i + 5);
  snapshots_.push_back(
      snapshot(region(area, area + 6 * mib, mib) + region(stack_end - 4 * mib, stack_end, 4 * mib, "[stack]"),
               10'000, 8 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.mapped_bytes, 9 * mib);
  EXPECT_EQ(answer.growth.explained_bytes, 4 * mib);
  ASSERT_EQ(answer.unexplained.size(), 2U);
  EXPECT_EQ(answer.unexplained[0].bytes, 3 * mib);
  EXPECT_NE(answer.unexplained[0].reason.find("stack"), std::string::npos);
  EXPECT_EQ(answer.unexplained[1].bytes, 2 * mib);
  EXPECT_TRUE(says(answer, "not explained by any captured call")) << answer.verdict_text;
}

TEST_F(Match, GrowsDownMappingsExplainWhatTheyGrewBy) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "stack_maker"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  call(9, {0, 64 * page, 3, 0x122, ~std::uint64_t{0}, 0}, area + mib, 1, 500);
  snapshots_.push_back(snapshot(region(area, area + mib + 64 * page, mib), 10'000, 2 * mib));
  EXPECT_EQ(match().growth.unexplained_bytes, 0U);
}

TEST_F(Match, SharedSegmentsAreAsLongAsTheMapsSay) {
  stacks_ = {make_stack(1, {{"libc.so.6", "shmat"}, {"app", "attach"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  call(30, {7, 0, 0}, area, 1, 500);
  call(30, {8, 0, 0}, area + 100 * mib, 1, 600);  // gone again, its shmdt was not captured
  snapshots_.push_back(
      snapshot(fmt::format("{:x}-{:x} rw-s 00000000 00:01 7 /SYSV00000000 (deleted)\nRss: 4 kB\n", area,
                           area + 3 * mib),
               10'000, mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.explained_bytes, 3 * mib);
  ASSERT_FALSE(answer.notes.empty());
  EXPECT_NE(answer.notes.back().find("1 attached shared memory segment"), std::string::npos);
}

TEST_F(Match, WithoutSmapsResidentIsUnknown) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 10);
  snapshots_.push_back(
      snapshot(fmt::format("{:x}-{:x} rw-p 00000000 00:00 0 \n", area, area + mib), 10'000, 2 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.stacks[0].resident_bytes, std::nullopt);
  EXPECT_EQ(answer.regions[0].rss_delta, std::nullopt);
}

TEST_F(Match, CallsAfterTheLastSnapshotDoNotUndoIt) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 10);
  munmap(area, mib, 1, 10'500);
  snapshots_.push_back(snapshot(region(area, area + mib, mib), 10'000, 2 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.explained_bytes, mib);
  EXPECT_NE(answer.notes.back().find("1 event after the last snapshot"), std::string::npos);
}

// A thread that waits for the tracer has its mapping before its return is timed.
TEST_F(Match, AMappingWhoseReturnIsTimedAfterTheSnapshotThatShowsIt) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}}),
             make_stack(2, {{"libc.so.6", "mmap64"}, {"app", "g"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 9'000);
  mmap(area + mib, mib, 1, 10'020);
  munmap(area, mib, 1, 10'030);
  mmap(area, mib, 2, 10'040);  // after the unmapping, so after the snapshot
  mmap(area + 2 * mib, mib, 1, 11'000);
  snapshots_.push_back(snapshot(region(area, area + 3 * mib, 0), 10'000, 4 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.explained_bytes, 2 * mib);
  EXPECT_EQ(answer.stacks[0].stack.id, 1U);
  EXPECT_EQ(answer.stacks[0].growth_bytes, 2 * mib);
}

TEST_F(Match, NewMemoryInPlaceOfOldIsNoGrowth) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "rotate"}})};
  snapshots_.push_back(snapshot(region(area, area + 10 * mib, 10 * mib), 0, 11 * mib));
  for (std::uint64_t i = 0; i < 10; ++i) {
    munmap(area + i * mib, mib, 1, 900 * i + 5);
    mmap(area + 100 * mib + i * mib, mib, 1, 900 * i + 6);
  }
  snapshots_.push_back(snapshot(region(area + 100 * mib, area + 110 * mib, 10 * mib), 10'000, 11 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "churn") << answer.verdict_text;
  EXPECT_TRUE(says(answer, "rotate (app)")) << answer.verdict_text;
  EXPECT_EQ(answer.growth.unmapped_bytes, 10 * mib);
}

TEST_F(Match, EventsOutOfOrderInTheFile) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}}),
             make_stack(2, {{"libc.so.6", "mmap64"}, {"app", "g"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 2, 30);
  munmap(area, mib, 1, 20);
  mmap(area, mib, 1, 10);
  snapshots_.push_back(snapshot(region(area, area + mib, mib), 10'000, 2 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.stacks[0].stack.id, 2U);
  EXPECT_EQ(answer.stacks[0].growth_bytes, mib);
}

TEST_F(Match, DifferentCallsOfOneStackAreRowsOfTheirOwn) {
  stacks_ = {make_stack(1, {{"libc.so.6", "syscall"}, {"app", "dispatch"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 10, 5);
  mmap(area + mib, mib, 1, 20, 6);
  call(25, {area, mib, 4 * mib, 1}, area + 16 * mib, 1, 30, 6);
  call(9, {0, mib, 3, 0x22}, static_cast<std::uint64_t>(-12), 1, 40, 6);
  snapshots_.push_back(snapshot(
      region(area + mib, area + 2 * mib, 0) + region(area + 16 * mib, area + 20 * mib, 0), 10'000, 2 * mib));
  const Answer answer = match();
  ASSERT_EQ(answer.stacks.size(), 2U);
  EXPECT_EQ(answer.stacks[0].syscall, 25);
  EXPECT_EQ(answer.stacks[0].growth_bytes, 3 * mib);
  EXPECT_EQ(answer.stacks[1].syscall, 9);
  EXPECT_EQ(answer.stacks[1].growth_bytes, 2 * mib);
  EXPECT_EQ(answer.stacks[1].count, 2U);
  EXPECT_EQ(answer.stacks[1].failed, 1U);
  EXPECT_EQ(answer.stacks[1].threads, 2U);
  EXPECT_EQ(answer.stacks[1].first_ns, at_ms(10) + 1000);
  EXPECT_EQ(answer.stacks[1].last_ns, at_ms(40) + 1000);
}

TEST_F(Match, WithoutTwoSnapshotsGrowthIsUnknown) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  mmap(area, mib, 1, 10);
  const Answer answer = match();
  EXPECT_FALSE(answer.growth.known);
  EXPECT_EQ(answer.verdict_class, "");
  EXPECT_TRUE(says(answer, "unknown")) << answer.verdict_text;
  EXPECT_EQ(answer.stacks[0].live_bytes, mib);
  EXPECT_EQ(answer_status(answer), ExitStatus::negative);
}

TEST_F(Match, RegionsFromAFileTakeTheLastSnapshotsPlace) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) mmap(area + i * mib, mib, 1, 1200 * i + 10);
  MatchOptions options;
  options.regions = {
      snapshot_from_text(fmt::format("{:x}-{:x} rw-p 00000000 00:00 0 \n", area, area + 20 * mib))};
  options.regions_name = "later.maps";
  const Answer answer = match(options);
  EXPECT_EQ(answer.growth.mapped_bytes, 20 * mib);
  EXPECT_EQ(answer.growth.explained_bytes, 8 * mib);
  EXPECT_EQ(answer.growth.rss_anon, std::nullopt);
  EXPECT_EQ(answer.verdict_class, "leak") << answer.verdict_text;
}

TEST_F(Match, RegionsOfAnotherProcessAreRefused) {
  snapshots_.push_back(snapshot(region(0x1000, 0x2000, page), 0, mib));
  MatchOptions options;
  options.regions = {snapshot_from_text("5000-6000 rw-p 00000000 00:00 0 \n")};
  options.regions_name = "other.maps";
  const auto answer = match_trace(write(), options);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::input_kind);
}

TEST_F(Match, ACutTraceIsMatchedAndSaidToBeCut) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 10);
  const auto answer = match_trace(write(false));
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->read.cut);
  EXPECT_FALSE(answer->complete);
  EXPECT_EQ(answer->lost, std::nullopt);
  EXPECT_EQ(answer->events, 1U);
}

TEST_F(Match, EventsOfStacksThatWereNeverWritten) {
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) mmap(area + i * mib, mib, 4'000'000'000U, 1200 * i + 10);
  snapshots_.push_back(snapshot(region(area, area + 8 * mib, 0), 10'000, mib));
  const Answer answer = match();
  EXPECT_EQ(answer.growth.explained_bytes, 8 * mib);
  EXPECT_TRUE(answer.stacks[0].stack.truncated.has_value());
}

// Three paths lead to one function: it is one culprit, and larger than the one with the largest stack.
TEST_F(Match, StacksOfOneCulpritAreCountedTogether) {
  for (std::uint32_t id = 1; id <= 3; ++id)
    stacks_.push_back(make_stack(
        id, {{"libc.so.6", "mmap64"}, {"app", "pool_grow"}, {"app", "path" + std::to_string(id)}}));
  stacks_.push_back(make_stack(4, {{"libc.so.6", "mmap64"}, {"app", "cache_fill"}}));
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 10; ++i) {
    for (std::uint64_t k = 0; k < 3; ++k)
      mmap(area + (i * 3 + k) * mib, mib, static_cast<std::uint32_t>(1 + k), 10 + i * 990 + k);
    mmap(area + (100 + 2 * i) * mib, 2 * mib, 4, 20 + i * 990);
  }
  snapshots_.push_back(
      snapshot(region(area, area + 30 * mib, 30 * mib) + region(area + 100 * mib, area + 120 * mib, 20 * mib),
               10'000, 51 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.stacks[0].stack.id, 4U) << "the largest stack";
  EXPECT_EQ(answer.verdict_class, "leak");
  EXPECT_TRUE(
      answer.verdict_text.starts_with("pool_grow (app) maps memory that stays mapped: 30 MiB of the 50 MiB"))
      << answer.verdict_text;
  EXPECT_TRUE(says(answer, "by 30 mmap calls from 3 stacks")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "Next: cache_fill (app), 20 MiB (40.0 %).")) << answer.verdict_text;
}

TEST_F(Match, GrowthSpreadOverManyIsSaidToBe) {
  for (std::uint32_t id = 1; id <= 8; ++id)
    stacks_.push_back(make_stack(id, {{"libc.so.6", "mmap64"}, {"app", "f" + std::to_string(id)}}));
  // Eight callers of malloc have more together than any function that maps.
  for (std::uint32_t id = 11; id <= 18; ++id)
    stacks_.push_back(make_stack(id, {{"libc.so.6", "mmap64"},
                                      {"libc.so.6", "sysmalloc"},
                                      {"libc.so.6", "malloc"},
                                      {"app", "m" + std::to_string(id)}}));
  const auto trace = [&](std::uint32_t first) {
    events_.clear();
    snapshots_ = {snapshot("", 0, mib)};
    for (std::uint64_t i = 0; i < 80; ++i)
      mmap(area + i * mib, mib, static_cast<std::uint32_t>(first + i % 8), 10 + i * 120);
    snapshots_.push_back(snapshot(region(area, area + 80 * mib, 80 * mib), 10'000, 81 * mib));
  };
  trace(1);
  const Answer direct = match();
  EXPECT_EQ(direct.verdict_class, "leak");
  EXPECT_TRUE(says(direct, "The growth is spread over 8 functions; next: f")) << direct.verdict_text;
  trace(11);
  const Answer through = match();
  EXPECT_EQ(through.verdict_class, "malloc");
  EXPECT_TRUE(
      through.verdict_text.starts_with("malloc mapped 80 MiB of the 80 MiB newly mapped in 10.0 s (100 %) "
                                       "for 8 functions, most of it, 10 MiB, for m"))
      << through.verdict_text;
}

// A Java heap: reserved and opened long ago, filled now; what is mapped meanwhile is small.
TEST_F(Match, OlderMemoryThatIsFilledIsInTheHeadline) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "grow"}, {"app", "main"}})};
  const std::uint64_t heap = area + 1024 * mib;
  const auto trace = [&](std::uint64_t filled) {
    events_.clear();
    snapshots_ = {snapshot(region(heap, heap + 512 * mib, 10 * mib), 0, 11 * mib)};
    for (std::uint64_t i = 0; i < 20; ++i) mmap(area + i * mib, mib, 1, 10 + i * 490);
    snapshots_.push_back(snapshot(
        region(area, area + 20 * mib, 20 * mib) + region(heap, heap + 512 * mib, (10 + filled) * mib), 10'000,
        (31 + filled) * mib));
  };
  trace(0);
  EXPECT_FALSE(says(match(), "before the trace"));
  trace(30);
  const Answer some = match();
  EXPECT_EQ(some.verdict_class, "leak");
  EXPECT_TRUE(says(
      some,
      "But most of the growth is elsewhere, 30 MiB became resident inside memory that was mapped before"))
      << some.verdict_text;
  EXPECT_TRUE(says(some, "perf record -e page-faults -c 1 --call-graph dwarf -p 1234 ")) << some.verdict_text;
  trace(300);
  const Answer most = match();
  EXPECT_EQ(most.verdict_class, "reservation");
  EXPECT_TRUE(most.verdict_text.starts_with("300 MiB became resident in 10.0 s inside memory"))
      << most.verdict_text;
  EXPECT_TRUE(says(most, fmt::format("most: {:x}-{:x}, anonymous", heap, heap + 512 * mib)))
      << most.verdict_text;
  EXPECT_TRUE(says(most, "Besides, grow (app) maps memory that stays mapped: 20 MiB")) << most.verdict_text;
}

TEST_F(Match, AFileThatRunsUnderAnotherName) {
  header_.target = {1234, 5678, "/opt/redis-check-rdb", "redis-server"};
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"redis-check-rdb", "grow"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) mmap(area + i * mib, mib, 1, 1200 * i + 10);
  snapshots_.push_back(snapshot(region(area, area + 8 * mib, 8 * mib), 10'000, 9 * mib));
  EXPECT_TRUE(match().verdict_text.starts_with("grow (redis-check-rdb, running as redis-server) maps"));
  header_.target = {1234, 5678, "/opt/redis-check-rdb", "redis-check"};
  EXPECT_TRUE(match().verdict_text.starts_with("grow (redis-check-rdb) maps"));
}

TEST_F(Match, CodeThatWasCompiledAtRunTimeHasNoName) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"},
                            {"libc.so.6", "malloc"},
                            {"node", "node::NodeArrayBufferAllocator::Allocate(unsigned long)"},
                            {"", ""},
                            {"node", "Builtins_JSEntry"}})};
  stacks_[0].frames[3].module.clear();
  stacks_[0].frames[3].offset = 0x7fe51800a78d;
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) mmap(area + i * mib, mib, 1, 1200 * i + 10);
  snapshots_.push_back(snapshot(region(area, area + 8 * mib, 8 * mib), 10'000, 9 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "malloc");
  EXPECT_TRUE(answer.verdict_text.starts_with(
      "code compiled at run time (0x7fe51800a78d) allocates through the memory manager of V8"))
      << answer.verdict_text;
  EXPECT_TRUE(says(answer, "arrayBuffers")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "--perf-basic-prof")) << answer.verdict_text;
}

TEST_F(Match, TheLineOfAnInterpreterIsForItsOwnTools) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"},
                            {"_native.so", "native_grow"},
                            {"python3.11", "_PyEval_EvalFrameDefault"},
                            {"python3.11", "Py_RunMain"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) mmap(area + i * mib, mib, 1, 1200 * i + 10);
  snapshots_.push_back(snapshot(region(area, area + 8 * mib, 8 * mib), 10'000, 9 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "leak");
  EXPECT_TRUE(says(answer, "native_grow (_native.so) maps")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "py-spy dump")) << answer.verdict_text;
}

// Whatever the events and the regions are, the parts add up: match() checks it.
TEST_F(Match, TheSumsHoldForAnything) {
  std::mt19937_64 random(5);
  for (std::uint32_t id = 1; id <= 6; ++id)
    stacks_.push_back(make_stack(id, {{"app", "f" + std::to_string(id)}}));
  const auto random_text = [&] {
    std::string text;
    std::uint64_t at = area;
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t start = at + (random() % 8) * page;
      at = start + (1 + random() % 30) * page;
      text += random() % 5 == 0 ? fmt::format("{:x}-{:x} rw-p 00000000 00:00 0 \n", start, at)
                                : region(start, at, (random() % 30) * page);
    }
    return text;
  };
  for (int round = 0; round < 60; ++round) {
    snapshots_ = {snapshot(random_text(), 0, random() % (100 * mib)),
                  snapshot(random_text(), 10'000, random() % (100 * mib))};
    events_.clear();
    for (std::uint64_t i = 0; i < 300; ++i) {
      constexpr std::int64_t numbers[] = {9, 9, 9, 11, 25, 12, 30, 67, 10, 28};
      const std::int64_t number = numbers[random() % 10];
      const std::uint64_t address = area + (random() % 1000) * page;
      const std::uint64_t flags =
          number == 9 ? 0x22 | (random() % 4 == 0 ? 0x10 : 0) | (random() % 9 == 0 ? 0x100 : 0)
                      : random() % 8;
      const std::uint64_t result = number == 11 || number == 67 ? 0 : area + (random() % 1000) * page;
      call(number, {address, (1 + random() % 40) * page, (1 + random() % 40) * page, flags, 0, 0},
           random() % 12 == 0 ? static_cast<std::uint64_t>(-12) : result,
           static_cast<std::uint32_t>(1 + random() % 6), random() % 9'999,
           static_cast<pid_t>(1 + random() % 3));
    }
    match();
  }
}

TEST_F(Match, DamagedTracesNeverCrash) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "f"}})};
  snapshots_.push_back(snapshot(region(0x1000, 0x2000, page), 0, mib));
  for (std::uint64_t i = 0; i < 5; ++i) mmap(area + i * mib, mib, 1, 1200 * i + 10);
  snapshots_.push_back(snapshot(region(area, area + 8 * mib, 0), 10'000, mib));
  const std::string path = write();
  const std::string text = *read_file(path);
  std::mt19937_64 random(9);
  for (int round = 0; round < 1'000; ++round) {
    std::string damaged = text;
    for (auto changes = 1 + random() % 12; changes != 0; --changes)
      damaged[random() % damaged.size()] = "0123456789abcdefx\"{}[],:-"[random() % 25];
    std::ofstream(path, std::ios::binary) << damaged;
    const auto answer = match_trace(path);
    if (!answer) continue;
    EXPECT_EQ(answer->growth.explained_bytes + answer->growth.unexplained_bytes, answer->growth.mapped_bytes);
  }
}

}  // namespace
}  // namespace whomap
