// SPDX-License-Identifier: Apache-2.0
// Which culprit the first line leads with, and how it is named where it has no good name of its own.
#include <gtest/gtest.h>

#include "core/report/region_rows.h"
#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

class MatchLead : public MatchTest {
 protected:
  static bool says(const Answer& answer, std::string_view part) {
    return answer.verdict_text.find(part) != std::string::npos;
  }
  /// The pages of [from, to) were looked at, those of `resident` are there.
  void pages(std::uint64_t from, std::uint64_t to, RangeSet resident) {
    snapshots_.back().pages = ResidentPages{{{from, to}}, std::move(resident)};
  }
  static std::string who_is(std::uint32_t id,
                            const std::vector<std::pair<std::string, std::string>>& frames) {
    const Stack stack = make_stack(id, frames);
    const auto culprit = find_culprit(stack, true);
    if (!culprit) return "none";
    return frame_name(stack.frames[culprit->frame]) +
           (culprit->named_caller ? " from " + frame_name(stack.frames[*culprit->named_caller]) : "");
  }
};

// A new arena of a worker thread, 64 MiB of addresses with 12 KiB touched, beside buffers that are filled.
TEST_F(MatchLead, WhatIsResidentComesFirst) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"libc.so.6", "malloc"}, {"app", "worker"}}),
             make_stack(2, {{"libc.so.6", "mmap64"}, {"libc.so.6", "malloc"}, {"app", "fill"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  const std::uint64_t filled = area + 64 * mib;
  mmap(area, 64 * mib, 1, 500);
  for (std::uint64_t i = 0; i < 20; ++i) mmap(filled + i * mib, mib, 2, 400 * i + 900);
  const std::uint64_t end = filled + 20 * mib;
  snapshots_.push_back(snapshot(region(area, end, 20 * mib + 3 * page), 10'000, 21 * mib));
  pages(area, end, {{area, area + 3 * page}, {filled, end}});
  const Answer answer = match();
  EXPECT_TRUE(answer.verdict_text.starts_with("fill (app) allocates through malloc, which mapped 20 MiB"))
      << answer.verdict_text;
  EXPECT_TRUE(says(answer, "Next, by address space: worker (app), 64 MiB (76.2 %), 12 KiB of it resident"))
      << answer.verdict_text;
  ASSERT_EQ(answer.stacks.size(), 2U);
  EXPECT_EQ(answer.stacks[0].stack.id, 1U) << "rows stay sorted by growth";
}

TEST_F(MatchLead, AddressSpaceIsCalledThat) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"}, {"app", "reserve"}})};
  snapshots_.push_back(snapshot("", 0, mib));
  for (std::uint64_t i = 0; i < 10; ++i) mmap(area + i * mib, mib, 1, 900 * i + 900);
  snapshots_.push_back(snapshot(region(area, area + 10 * mib, 2 * mib), 10'000, 3 * mib));
  pages(area, area + 10 * mib, {{area, area + 2 * mib}});
  const Answer answer = match();
  EXPECT_TRUE(says(answer, "(100 %), 2 MiB of it resident, by 10 mmap calls")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "60 MiB/min of address space on average")) << answer.verdict_text;
}

TEST_F(MatchLead, CallsOfSeveralKindsAreCountedTogether) {
  constexpr std::uint64_t heap = 0x550000000000;
  stacks_ = {make_stack(1, {{"libc.so.6", "sysmalloc"}, {"libc.so.6", "malloc"}, {"app", "fill"}})};
  snapshots_.push_back(snapshot(region(heap, heap + mib, mib, "[heap]"), 0, mib));
  for (std::uint64_t i = 1; i <= 5; ++i) call(12, {heap + (i + 1) * mib}, heap + (i + 1) * mib, 1, 900 * i);
  mmap(area, mib, 1, 5'000);
  mmap(area + mib, mib, 1, 5'001);
  munmap(area + mib, mib, 1, 5'002);
  snapshots_.push_back(snapshot(
      region(heap, heap + 6 * mib, 6 * mib, "[heap]") + region(area, area + mib, mib), 10'000, 8 * mib));
  const Answer answer = match();
  EXPECT_TRUE(says(answer, "by 6 of 7 calls (2 mmap, 5 brk) from 2 stacks")) << answer.verdict_text;
}

TEST_F(MatchLead, NamelessCodeIsCalledFromSomewhere) {
  EXPECT_EQ(who_is(1, {{"libc.so.6", "malloc"},
                       {"postgres", ""},
                       {"postgres", ""},
                       {"postgres", "set_config_option_ext"}}),
            "postgres+0x1020 from set_config_option_ext");
  // A nameless function that an allocator calls is the allocator's.
  EXPECT_EQ(who_is(1, {{"libc.so.6", "malloc"},
                       {"libsqlite3.so", ""},
                       {"libsqlite3.so", "sqlite3Malloc"},
                       {"libsqlite3.so", ""},
                       {"libsqlite3.so", "sqlite3BtreeInsert"}}),
            "libsqlite3.so+0x1040 from sqlite3BtreeInsert");
  EXPECT_EQ(who_is(1, {{"libc.so.6", "malloc"}, {"mmap.so", ""}, {"python3.11", "_PyObject_MakeTpCall"}}),
            "mmap.so+0x1020");
  EXPECT_EQ(who_is(1, {{"libc.so.6", "malloc"}, {"app", "named"}, {"app", "main"}}), "named");
}

// mprotect was traced: who called it is known, and advising to trace it would lead in a circle.
TEST_F(MatchLead, WhoOpensAReservation) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mprotect"}, {"app", "open_more"}}),
             make_stack(2, {{"libc.so.6", "mprotect"}, {"app", "other"}})};
  header_.plan.watched = {9, 10, 11};
  snapshots_.push_back(snapshot(region(area, area + 64 * mib, 0, "", "---p"), 0, mib));
  for (std::uint64_t i = 0; i < 8; ++i) call(10, {area + i * mib, mib, 3}, 0, 1, 900 * i + 100);
  call(10, {area, mib, 3}, 0, 2, 9'000);
  snapshots_.push_back(
      snapshot(region(area, area + 8 * mib, 8 * mib) + region(area + 8 * mib, area + 64 * mib, 0, "", "---p"),
               10'000, 9 * mib));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "reservation");
  EXPECT_TRUE(says(answer, "8 of the 9 mprotect calls come from open_more (app).")) << answer.verdict_text;
  EXPECT_FALSE(says(answer, "--syscalls")) << answer.verdict_text;
  events_.clear();
  EXPECT_TRUE(says(match(), "mprotect was watched, but no call")) << match().verdict_text;
  header_.plan.watched = {9, 11};
  EXPECT_TRUE(says(match(), "--syscalls mmap,munmap,mremap,brk,mprotect"));
}

TEST_F(MatchLead, TheHeapOfAJvm) {
  constexpr std::uint64_t heap = 0xc0000000;
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap64"},
                            {"libc.so.6", "allocate_stack"},
                            {"libc.so.6", "pthread_create"},
                            {"libjvm.so", "WorkerManager::add_workers"}})};
  const std::string jvm = fmt::format(
      "{:x}-{:x} r-xp 00000000 08:01 77 /usr/lib/jvm/lib/server/libjvm.so\nRss: 0 kB\n", area, area + mib);
  snapshots_.push_back(snapshot(region(heap, heap + 100 * mib, mib) + jvm, 0, mib, 0, 19));
  mmap(area + 2 * mib, mib, 1, 500);
  snapshots_.push_back(snapshot(
      region(heap, heap + 100 * mib, 50 * mib) + jvm + region(area + 2 * mib, area + 3 * mib, 4 * page),
      10'000, 50 * mib, 0, 20));
  const Answer answer = match();
  EXPECT_EQ(answer.verdict_class, "reservation");
  EXPECT_TRUE(says(answer, "its Java heap: jcmd PID GC.heap_info")) << answer.verdict_text;
  EXPECT_TRUE(says(answer, "1 MiB, all that was newly mapped in 10.0 s")) << answer.verdict_text;
  EXPECT_FALSE(says(answer, "100 %")) << answer.verdict_text;
}

TEST(RegionRows, EqualRegionsAreOneRow) {
  const auto made = [](std::uint64_t at, const std::string& kind, std::int64_t size) {
    RegionAnswer region;
    region.range = {at, at + 0x1000};
    region.kind = kind;
    region.name = "/dev/zero (deleted)";
    region.size_delta = size;
    region.rss_delta = size / 2;
    region.explained_bytes = static_cast<std::uint64_t>(size);
    return region;
  };
  std::vector<RegionAnswer> regions;
  for (std::uint64_t i = 0; i < 8; ++i) regions.push_back(made(0x10000 * (i + 1), "shared-memory", 1 << 20));
  regions.push_back(made(0x900000, "shared-memory", 4096));
  regions.push_back(made(0xa00000, "file", 4096));
  regions[7].rss_delta.reset();
  const auto rows = region_rows(regions);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].count, 8U);
  EXPECT_EQ(rows[0].first, regions.data());
  EXPECT_EQ(rows[0].size_delta, 8 << 20);
  EXPECT_EQ(rows[0].rss_delta, std::nullopt) << "unknown where one is";
  EXPECT_EQ(rows[0].explained_bytes, 8U << 20);
  EXPECT_EQ(rows[1].count, 1U);
  EXPECT_EQ(rows[1].rss_delta, 2048);
}

}  // namespace
}  // namespace whomap
