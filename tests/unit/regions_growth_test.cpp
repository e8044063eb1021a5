// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/regions/classes.h"
#include "core/regions/range_set.h"
#include "core/regions/snapshot.h"

namespace whomap {
namespace {

/// A snapshot of anonymous regions.
Snapshot snapshot(std::vector<AddressRange> ranges) {
  Snapshot made;
  for (const AddressRange& range : ranges) {
    Region region;
    region.vma.start = range.start;
    region.vma.end = range.end;
    region.vma.readable = region.vma.writable = true;
    made.regions.push_back(region);
  }
  return made;
}

using Ranges = std::vector<AddressRange>;

TEST(RangeSet, MergesSortsAndLeavesOutNothings) {
  EXPECT_EQ(make_range_set({{5, 7}, {1, 3}, {3, 4}, {6, 9}, {20, 20}, {31, 30}}), (Ranges{{1, 4}, {5, 9}}));
}

TEST(RangeSet, AgreesWithSetsOfSingleAddresses) {
  std::mt19937 random(7);
  const auto draw = [&] {
    Ranges ranges;
    for (auto i = random() % 8; i != 0; --i) {
      const std::uint64_t start = random() % 60;
      ranges.push_back({start, start + random() % 12});
    }
    return make_range_set(std::move(ranges));
  };
  const auto single = [](const RangeSet& set) {
    std::set<std::uint64_t> addresses;
    for (const AddressRange& range : set)
      for (std::uint64_t at = range.start; at < range.end; ++at) addresses.insert(at);
    return addresses;
  };
  for (int round = 0; round < 20'000; ++round) {
    const RangeSet left = draw();
    const RangeSet right = draw();
    std::set<std::uint64_t> minus;
    std::set<std::uint64_t> both;
    const auto in_right = single(right);
    for (const std::uint64_t at : single(left)) (in_right.count(at) != 0 ? both : minus).insert(at);
    ASSERT_EQ(single(subtract(left, right)), minus);
    ASSERT_EQ(single(intersect(left, right)), both);
    ASSERT_EQ(total_size(intersect(left, right)), both.size());
    std::uint64_t sum = 0;
    for (const AddressRange& range : right) sum += overlap(left, range);
    ASSERT_EQ(sum, both.size());
  }
}

// D02: raw mmaps of 64, 128, 192 and 256 KiB beside an older 12 KiB neighbour become one region whose start
// falls and whose end stays.
TEST(Growth, MappingsThatTheKernelMergedIntoAnOlderNeighbour) {
  constexpr std::uint64_t end = 0x7f0000100000;
  constexpr std::uint64_t old_size = 76 << 10;  // 12 KiB of the neighbour and the first mapping
  const Snapshot before = snapshot({{end - old_size, end}});
  const Snapshot after = snapshot({{end - (716 << 10), end}});
  EXPECT_EQ(newly_mapped(before, after), (Ranges{{end - (716 << 10), end - old_size}}));
  EXPECT_TRUE(no_longer_mapped(before, after).empty());
}

// D04: one VMA of 6,156 kB is split by mprotect of guards into six of 16 and 2,036 kB: nothing grew.
TEST(Growth, ASplitRegionIsNoGrowth) {
  constexpr std::uint64_t start = 0x7f0000000000;
  Ranges split;
  std::uint64_t at = start;
  for (int i = 0; i < 3; ++i) {
    split.push_back({at, at + (16 << 10)});
    split.push_back({at + (16 << 10), at + (2052 << 10)});
    at += 2052 << 10;
  }
  ASSERT_EQ(at - start, std::uint64_t{6156} << 10);
  const Snapshot before = snapshot({{start, at}});
  const Snapshot after = snapshot(split);
  EXPECT_TRUE(newly_mapped(before, after).empty());
  EXPECT_TRUE(no_longer_mapped(before, after).empty());
}

TEST(Growth, AMovedRegionIsNewHereAndGoneThere) {
  const Snapshot before = snapshot({{0x1000, 0x5000}});
  const Snapshot after = snapshot({{0x9000, 0xf000}});
  EXPECT_EQ(newly_mapped(before, after), (Ranges{{0x9000, 0xf000}}));
  EXPECT_EQ(no_longer_mapped(before, after), (Ranges{{0x1000, 0x5000}}));
}

TEST(Growth, AnAddressThatIsReusedIsNotNew) {
  const Snapshot before = snapshot({{0x1000, 0x5000}});
  EXPECT_TRUE(newly_mapped(before, before).empty());
}

TEST(SnapshotText, ARegionThatMergedWhileItWasReadIsThereOnce) {
  const Snapshot read = snapshot_from_text(
      "1000-3000 rw-p 00000000 00:00 0 \nRss: 8 kB\n"
      "2000-6000 rw-p 00000000 00:00 0 \nRss: 12 kB\n"
      "8000-9000 rw-p 00000000 00:00 0 \nRss: 4 kB\n"
      "7000-a000 rw-p 00000000 00:00 0 \nRss: 4 kB\n");
  EXPECT_EQ(mapped_addresses(read), (Ranges{{0x1000, 0x6000}, {0x7000, 0xa000}}));
  ASSERT_EQ(read.regions.size(), 3U);
  EXPECT_EQ(read.regions[0].vma.end, 0x2000U);
  EXPECT_EQ(read.regions[0].rss, std::nullopt);
  EXPECT_EQ(read.regions[1].rss, 12U << 10);
  EXPECT_EQ(read.overlaps, 2U);
}

TEST(SnapshotText, MapsHaveNoResidentSizes) {
  const Snapshot read = snapshot_from_text("1000-3000 rw-p 00000000 00:00 0 \n");
  ASSERT_EQ(read.regions.size(), 1U);
  EXPECT_EQ(read.regions[0].rss, std::nullopt);
  EXPECT_FALSE(read.without_smaps.empty());
}

TEST(SnapshotJson, RoundTrip) {
  Snapshot written = snapshot_from_text(
      "1000-3000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nAnonymous: 8 kB\nSwap: 4 kB\nVmFlags: rd wr\n"
      "4000-5000 r-xs 00001000 fe:12 4294967297 /tmp/a b\\012\xff (deleted)\n");
  written.time_ns = 18'000'000'000'000'000'000ULL;
  written.duration_ns = 5;
  written.totals.rss_anon = 8192;
  written.threads = 3;
  written.unparsed = {"bad line"};
  const std::string text = to_json(written).dump();
  const auto read = snapshot_from_json(nlohmann::json::parse(text));
  ASSERT_TRUE(read.has_value()) << to_line(read.error());
  EXPECT_EQ(read->time_ns, written.time_ns);
  EXPECT_EQ(read->totals.rss_anon, 8192U);
  EXPECT_EQ(read->totals.swap, std::nullopt);
  EXPECT_EQ(read->threads, 3U);
  EXPECT_EQ(read->unparsed, written.unparsed);
  ASSERT_EQ(read->regions.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->regions[i].vma, written.regions[i].vma);
    EXPECT_EQ(read->regions[i].rss, written.regions[i].rss);
    EXPECT_EQ(read->regions[i].anonymous, written.regions[i].anonymous);
    EXPECT_EQ(read->regions[i].swap, written.regions[i].swap);
    EXPECT_EQ(read->regions[i].vm_flags, written.regions[i].vm_flags);
  }
}

TEST(SnapshotJson, DamagedOnesAreRefused) {
  for (
      const char* text :
      {"null", "[]", "{}", R"({"time_ns":1})", R"({"time_ns":"1","regions":[]})",
       R"({"time_ns":1,"regions":[{}]})", R"({"time_ns":1,"regions":[7]})",
       R"({"time_ns":1,"regions":[{"start":"0x2","end":"0x1","perms":"rw-p"}]})",
       R"({"time_ns":1,"regions":[{"start":"0x1","end":"0x2","perms":"rw"}]})",
       R"({"time_ns":1,"regions":[{"start":"0x1","end":"0x3","perms":"rw-p"},{"start":"0x2","end":"0x4","perms":"rw-p"}]})",
       R"({"time_ns":1,"regions":[{"start":"0x1","end":"0x2","perms":"rw-p","name_hex":"0g"}]})"}) {
    const auto read = snapshot_from_json(nlohmann::json::parse(text));
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::input_damaged);
  }
}

RegionKind kind_of(std::string_view text, std::size_t index) {
  const Snapshot read = snapshot_from_text(text);
  EXPECT_TRUE(read.unparsed.empty());
  const RegionClass result = classify(read, index);
  EXPECT_FALSE(result.evidence.empty());
  return result.kind;
}

TEST(Classes, ByName) {
  const std::vector<std::pair<std::string, RegionKind>> names{
      {"[heap]", RegionKind::heap},
      {"[stack]", RegionKind::stack},
      {"[stack:123]", RegionKind::thread_stack},
      {"[anon: glibc: pthread stack: 77]", RegionKind::thread_stack},
      {"[anon: glibc: malloc arena]", RegionKind::glibc_arena},
      {"[anon:name with spaces]", RegionKind::named},
      {"[vdso]", RegionKind::kernel},
      {"[vvar]", RegionKind::kernel},
      {"/memfd:doublemapper (deleted)", RegionKind::memfd},
      {"/dev/shm/x", RegionKind::shared_memory},
      {"/SYSV00000000 (deleted)", RegionKind::shared_memory},
      {"/dev/zero (deleted)", RegionKind::shared_memory},
      {"/dev/nvidia0", RegionKind::device},
      {"/usr/lib/libc.so.6", RegionKind::file},
  };
  for (const auto& [name, kind] : names)
    EXPECT_EQ(kind_of("1000-3000 rw-p 00000000 00:00 0 " + name + "\n", 0), kind) << name;
}

TEST(Classes, ByShape) {
  EXPECT_EQ(kind_of("1000-3000 rw-p 00000000 00:00 0 \n", 0), RegionKind::anonymous);
  EXPECT_EQ(kind_of("1000-3000 rwxp 00000000 00:00 0 \n", 0), RegionKind::jit);
  EXPECT_EQ(kind_of("1000-3000 ---p 00000000 00:00 0 \n", 0), RegionKind::reservation);
  EXPECT_EQ(kind_of("1000-3000 rw-p 00000000 00:00 0 \nVmFlags: rd wr gd \n", 0), RegionKind::grows_down);
  EXPECT_EQ(kind_of("1000-3000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)\nVmFlags: rd wr ht\n", 0),
            RegionKind::huge_pages);
  constexpr std::string_view arena =
      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n7f0000200000-7f0004000000 ---p 00000000 00:00 0 \n";
  EXPECT_EQ(kind_of(arena, 0), RegionKind::glibc_arena);
  EXPECT_EQ(kind_of(arena, 1), RegionKind::reservation);
  // The kernel merges a mapping right below the arena with it, if it has the same flags.
  constexpr std::string_view merged_little =
      "7effffff0000-7f0000200000 rw-p 00000000 00:00 0 \n7f0000200000-7f0004000000 ---p 00000000 00:00 0 \n";
  EXPECT_EQ(kind_of(merged_little, 0), RegionKind::glibc_arena);
  EXPECT_EQ(kind_of(merged_little, 1), RegionKind::reservation);
  constexpr std::string_view merged_much =
      "7effff000000-7f0000200000 rw-p 00000000 00:00 0 \n7f0000200000-7f0004000000 ---p 00000000 00:00 0 \n";
  EXPECT_EQ(kind_of(merged_much, 0), RegionKind::anonymous);
  const Snapshot shared = snapshot_from_text(merged_much);
  EXPECT_NE(classify(shared, 0).evidence.find("its last 2048 KiB, from 0x7f0000000000 on, are a glibc arena"),
            std::string::npos);
  // Go's heap looks like one.
  constexpr std::string_view go =
      "c000000000-c000400000 rw-p 00000000 00:00 0 \nc000400000-c004000000 ---p 00000000 00:00 0 \n";
  EXPECT_EQ(kind_of(go, 0), RegionKind::anonymous);
  constexpr std::string_view stack =
      "7f0000fff000-7f0001000000 ---p 00000000 00:00 0 \n7f0001000000-7f0001800000 rw-p 00000000 00:00 0 \n";
  EXPECT_EQ(kind_of(stack, 1), RegionKind::thread_stack);
}

TEST(Snapshot, ResidentPagesSurviveTheFile) {
  Snapshot snapshot = snapshot_from_text("1000-9000 rw-p 00000000 00:00 0 \n");
  EXPECT_FALSE(snapshot_from_json(nlohmann::json::parse(to_json(snapshot).dump()))->pages);
  snapshot.pages = ResidentPages{{{0x1000, 0x9000}}, {{0x2000, 0x3000}, {0x5000, 0x8000}}};
  const auto again = snapshot_from_json(nlohmann::json::parse(to_json(snapshot).dump()));
  ASSERT_TRUE(again && again->pages);
  EXPECT_EQ(again->pages->looked_at, snapshot.pages->looked_at);
  EXPECT_EQ(again->pages->resident, snapshot.pages->resident);
  nlohmann::json damaged = nlohmann::json::parse(to_json(snapshot).dump());
  damaged["pages"]["resident"] = {"0x9-0x1"};
  EXPECT_FALSE(snapshot_from_json(damaged).has_value());
}

}  // namespace
}  // namespace whomap
