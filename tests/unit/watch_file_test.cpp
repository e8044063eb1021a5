// SPDX-License-Identifier: Apache-2.0
// The watch file: what is written is read again, and damage is said; and the lines made from a watch.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "core/match/shape_text.h"
#include "core/process/thread_stacks.h"
#include "core/regions/classes.h"
#include "core/regions/smaps.h"
#include "core/report/layout.h"
#include "core/report/watch_json.h"
#include "core/report/watch_text.h"
#include "core/trace/watch_file.h"

namespace whomap {
namespace {

constexpr std::uint64_t second = 1'000'000'000;

std::string region(std::uint64_t start, std::uint64_t end, std::uint64_t rss_kb) {
  return fmt::format("{:x}-{:x} rw-p 00000000 00:00 0 \nRss: {} kB\nVmFlags: rd wr\n", start, end, rss_kb);
}

class WatchFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("whomap-watch-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/w.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Reading reading(std::uint64_t seconds, const std::string& text,
                         Reading::Depth depth = Reading::Depth::smaps) {
    Reading made;
    made.depth = depth;
    made.snapshot = snapshot_from_text(text);
    made.snapshot.time_ns = (seconds + 1) * second;
    made.snapshot.totals.rss_anon = seconds * 1024;
    return made;
  }

  /// Writes the readings one after the other, as a watch does.
  RegionTracker write(std::vector<Reading> readings, bool with_end = true) {
    auto writer = WatchWriter::create(path_, true, {{77, 5, "/bin/x", "x"}, "1.0", second, 1, 65530});
    EXPECT_TRUE(writer.has_value());
    RegionTracker tracker;
    for (Reading& each : readings) {
      EXPECT_TRUE(writer->sample(tracker.latest(), each));
      if (each.depth == Reading::Depth::status)
        tracker.add_totals(each.snapshot.time_ns, each.snapshot.totals, each.snapshot.threads);
      else
        tracker.add(std::move(each.snapshot));
    }
    if (with_end) {
      EXPECT_TRUE(writer->end(watch_end_record(view_of(tracker, {}), {{}, "time", {}, {}, {}})));
    }
    return tracker;
  }

  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_, path_;
};

TEST_F(WatchFileTest, RegionsThatChangeComeAndGoAreReadAsTheyWere) {
  const RegionTracker tracker =
      write({reading(0, region(0x1000, 0x3000, 8) + region(0x5000, 0x9000, 4)),
             reading(1, "", Reading::Depth::status),
             reading(2, region(0x1000, 0x3000, 8) + region(0x4000, 0x9000, 12) + region(0xa000, 0xb000, 4)),
             reading(3, region(0x4000, 0x9000, 16))});
  const auto file = read_watch_file(path_);
  ASSERT_TRUE(file.has_value()) << to_line(file.error());
  EXPECT_EQ(file->header.target.pid, 77);
  EXPECT_EQ(file->header.mapping_limit, 65530U);
  EXPECT_EQ(file->end_reason, "time");
  EXPECT_EQ(file->totals.size(), 4U);
  ASSERT_EQ(file->snapshots.size(), 3U);
  ASSERT_EQ(file->snapshots[1].regions.size(), 3U);
  EXPECT_EQ(file->snapshots[1].regions[1].vma.start, 0x4000U);
  EXPECT_EQ(file->snapshots[1].regions[1].rss, 12U << 10);
  EXPECT_EQ(file->snapshots[1].regions[0].vm_flags, "rd wr");
  ASSERT_EQ(file->snapshots[2].regions.size(), 1U);
  EXPECT_EQ(file->snapshots[2].regions[0].vma, tracker.latest().regions[0].vma);
  EXPECT_EQ(file->snapshots[2].time_ns, 4 * second);
}

TEST_F(WatchFileTest, UnchangedRegionsAreNotWrittenAgain) {
  std::string many;
  for (std::uint64_t i = 1; i <= 500; ++i) many += region(i * 0x10000, i * 0x10000 + 0x1000, 4);
  std::vector<Reading> readings;
  for (std::uint64_t i = 0; i < 100; ++i) readings.push_back(reading(i, many));
  write(std::move(readings));
  const std::string written = text();
  const std::size_t first = written.find('\n', written.find('\n') + 1);
  EXPECT_LT(written.size() - first, first);  // a hundred more readings are shorter than the first
}

TEST_F(WatchFileTest, AKilledWriterLeavesWhatItHad) {
  write({reading(0, region(0x1000, 0x3000, 8)), reading(1, region(0x1000, 0x4000, 12)),
         reading(2, region(0x1000, 0x5000, 16))},
        false);
  std::string cut = text();
  cut.resize(cut.size() - 10);
  const auto file = read_watch_text(cut, "cut");
  ASSERT_TRUE(file.has_value()) << to_line(file.error());
  EXPECT_TRUE(file->cut_line);
  EXPECT_TRUE(file->end_reason.empty());
  ASSERT_EQ(file->snapshots.size(), 2U);
  EXPECT_EQ(file->snapshots.back().regions[0].vma.end, 0x4000U);
}

TEST_F(WatchFileTest, BehindADamagedLineTheRegionsAreUnknown) {
  write({reading(0, region(0x1000, 0x3000, 8)), reading(1, region(0x1000, 0x4000, 12)),
         reading(2, region(0x1000, 0x5000, 16))});
  std::string damaged = text();
  const std::size_t third = damaged.find('\n', damaged.find('\n') + 1) + 1;
  damaged.replace(third, 5, "#####");
  const auto file = read_watch_text(damaged, "damaged");
  ASSERT_TRUE(file.has_value()) << to_line(file.error());
  EXPECT_EQ(file->damaged_lines, 1U);
  EXPECT_EQ(file->left_out, 1U);
  EXPECT_EQ(file->snapshots.size(), 1U);
  EXPECT_EQ(file->totals.size(), 2U);
}

TEST_F(WatchFileTest, AnHourIsThinnedAndItsEndsStay) {
  std::vector<Reading> readings;
  for (std::uint64_t i = 0; i < 3600; ++i)
    readings.push_back(reading(i, region(0x10000, 0x20000 + i * 0x1000, 4)));
  write(std::move(readings));
  const auto file = read_watch_file(path_, 32);
  ASSERT_TRUE(file.has_value());
  EXPECT_LE(file->snapshots.size(), 34U);
  EXPECT_GE(file->snapshots.size(), 16U);
  EXPECT_EQ(file->snapshots.front().time_ns, second);
  EXPECT_EQ(file->snapshots.back().time_ns, 3600 * second);
  EXPECT_EQ(file->snapshots.back().regions[0].vma.end, 0x20000U + 3599 * 0x1000U);
  EXPECT_EQ(file->totals.size(), 3600U);
}

TEST_F(WatchFileTest, AReadingThatWasLeftOutHasTheRegionsOfTheOneBefore) {
  std::vector<Reading> readings{reading(0, region(0x1000, 0x3000, 8)),
                                reading(1, region(0x1000, 0x4000, 12))};
  for (std::uint64_t i = 2; i < 6; ++i) {
    readings.push_back(reading(i, "", Reading::Depth::status));
    if (i < 5) readings.back().unchanged = Reading::Depth::smaps;
  }
  write(std::move(readings));
  const auto file = read_watch_file(path_);
  ASSERT_TRUE(file.has_value()) << to_line(file.error());
  EXPECT_EQ(file->totals.size(), 6U);
  ASSERT_EQ(file->snapshots.size(), 5U);
  EXPECT_EQ(file->snapshots.back().time_ns, 5 * second);
  ASSERT_EQ(file->snapshots.back().regions.size(), 1U);
  EXPECT_EQ(file->snapshots.back().regions[0].vma.end, 0x4000U);
}

TEST_F(WatchFileTest, WhatANewerKernelTellsIsKept) {
  write({reading(0, region(0x1000, 0x3000, 8) + "Marvellous:   12 kB\n")});
  EXPECT_NE(text().find(R"("unknown":{"Marvellous":"12 kB"})"), std::string::npos);
  const auto file = read_watch_file(path_);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->snapshots[0].regions[0].unknown,
            (std::vector<std::pair<std::string, std::string>>{{"Marvellous", "12 kB"}}));
}

TEST_F(WatchFileTest, OtherFilesAreRefusedByName) {
  const auto code_of = [](std::string_view text) {
    const auto file = read_watch_text(text, "f");
    return file ? ErrorCode::usage : file.error().code;
  };
  EXPECT_EQ(code_of(""), ErrorCode::input_kind);
  EXPECT_EQ(code_of("1000-3000 rw-p 00000000 00:00 0 \n"), ErrorCode::input_kind);
  EXPECT_EQ(code_of("{\"format\":\"whomap-trace\"}\n"), ErrorCode::input_kind);
  EXPECT_EQ(code_of("{\"format\":\"whomap-watch\",\"version\":9,\"target\":{\"pid\":1}}\n"),
            ErrorCode::input_kind);
  EXPECT_EQ(code_of("{\"format\":\"whomap-watch\",\"version\":1}\n"), ErrorCode::input_damaged);
  EXPECT_EQ(code_of("{\"format\":\"whomap-watch\",\"version\":1,\"target\":{\"pid\":1}}\n"),
            ErrorCode::input_damaged);
}

// Pieces may end anywhere: the entries are the same as of the whole text.
TEST(SmapsParser, PiecesOfAnyLengthGiveTheSameEntries) {
  const std::string text =
      "1000-3000 rw-p 00000000 00:00 0 [anon:Size: 3 kB]\nSize:                  8 kB\nRss:                  "
      " 4 kB\n"
      "Pss_Dirty:             4 kB\nShared_Clean:          0 kB\nMarvellous:     1 kB\nTHPeligible:          "
      " 1\n"
      "VmFlags: rd wr \n4000-5000 r--s 00001000 fe:12 4294967297 /tmp/a b\\012 (deleted)\nRss:    4 kB\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
  const SmapsList whole = parse_smaps(text);
  ASSERT_EQ(whole.entries.size(), 3U);
  EXPECT_EQ(whole.entries[0].get(SmapsField::shared_clean), 0U);
  EXPECT_EQ(whole.entries[0].get(SmapsField::thp_eligible), 1U);
  for (std::size_t length = 1; length < text.size(); ++length) {
    std::vector<SmapsEntry> entries;
    SmapsParser parser([&](SmapsEntry& entry) { entries.push_back(entry); });
    for (std::size_t i = 0; i < text.size(); i += length)
      parser.feed(std::string_view(text).substr(i, length));
    parser.finish();
    ASSERT_EQ(entries.size(), whole.entries.size()) << length;
    EXPECT_TRUE(parser.unparsed().empty());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].vma, whole.entries[i].vma);
      EXPECT_EQ(entries[i].present, whole.entries[i].present);
      EXPECT_EQ(entries[i].vm_flags, whole.entries[i].vm_flags);
      EXPECT_EQ(entries[i].unknown, whole.entries[i].unknown);
    }
  }
}

TEST(SmapsParser, RollupHasItsOwnFields) {
  const SmapsList list = parse_smaps(
      "5587ac250000-7ffff1289000 ---p 00000000 00:00 0                          [rollup]\nRss:               "
      " 1616 kB\n"
      "Pss:                 457 kB\nPss_Dirty:           116 kB\nPss_Anon:            116 kB\nPss_File:      "
      "      341 kB\n"
      "Pss_Shmem:             0 kB\nShared_Clean:       1432 kB\n");
  ASSERT_EQ(list.entries.size(), 1U);
  EXPECT_EQ(list.entries[0].get(SmapsField::pss_file), 341U << 10);
  EXPECT_EQ(list.entries[0].get(SmapsField::shared_clean), 1432U << 10);
  EXPECT_TRUE(list.entries[0].unknown.empty());
}

TEST(ThreadStacks, TheStackPointerOfALine) {
  EXPECT_EQ(parse_stack_pointer("0 0x3 0x7f 0x2 0x7f5c 0xff 0x0 0x7ffe58756858 0x7f5cb7d182ad\n"),
            0x7ffe58756858U);
  EXPECT_EQ(parse_stack_pointer("-1 0x7ffe58756858 0x7f5cb7d182ad\n"), 0x7ffe58756858U);
  for (const std::string_view text :
       {"running\n", "", "\n", "1", "0 x 0x1", "0 0xg 0x1", "0 0x11111111111111111 0x1"})
    EXPECT_EQ(parse_stack_pointer(text), std::nullopt) << text;
}

// D03: a stack whose thread has ended has a guard and the size of a stack, and no stack pointer in it.
TEST(Classes, StacksOfLiveAndOfExitedThreads) {
  constexpr std::string_view text =
      "7f0000fff000-7f0001000000 ---p 00000000 00:00 0 \n7f0001000000-7f0001800000 rw-p 00000000 00:00 0 \n"
      "7f0001fff000-7f0002000000 ---p 00000000 00:00 0 \n7f0002000000-7f0002800000 rw-p 00000000 00:00 0 \n"
      "7f0003fff000-7f0004000000 ---p 00000000 00:00 0 \n7f0004000000-7f0004123000 rw-p 00000000 00:00 0 \n";
  Snapshot snapshot = snapshot_from_text(text);
  snapshot.stacks.looked = true;
  snapshot.stacks.limit = 8 << 20;
  snapshot.stacks.seen = {{42, 0x7f00017ffe00}};
  EXPECT_EQ(classify(snapshot, 1).kind, RegionKind::thread_stack);
  EXPECT_NE(classify(snapshot, 1).evidence.find("thread 42"), std::string::npos);
  EXPECT_EQ(classify(snapshot, 3).kind, RegionKind::exited_thread_stack);
  EXPECT_EQ(classify(snapshot, 5).kind, RegionKind::anonymous);  // guarded, but no stack by its size
  // As long as one thread's stack pointer is not known, nothing is called left behind.
  snapshot.stacks.unseen = 1;
  EXPECT_EQ(classify(snapshot, 3).kind, RegionKind::thread_stack);
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i)
    EXPECT_EQ(kind_of(snapshot, i), classify(snapshot, i).kind);
}

TEST(Classes, MemoryThatOnlyHoldsAStackIsNone) {
  Snapshot snapshot = snapshot_from_text(
      // A heap of goroutines: no guard.
      "c000000000-c000400000 rw-p 00000000 00:00 0 \n"
      // A stack of 8 MiB that was merged with 100 MiB above it, behind its guard.
      "7f0000fff000-7f0001000000 ---p 00000000 00:00 0 \n7f0001000000-7f0007c00000 rw-p 00000000 00:00 0 \n"
      // Two stacks of 8 MiB without guards.
      "7f1000000000-7f1001000000 rw-p 00000000 00:00 0 \n");
  ASSERT_EQ(snapshot.regions.size(), 4U);
  snapshot.stacks.looked = true;
  snapshot.stacks.limit = 8 << 20;
  snapshot.stacks.seen = {{1, 0xc000046e00}, {2, 0x7f00017ffe00}, {3, 0x7f10007ffe00}, {4, 0x7f1000fffe00}};
  EXPECT_EQ(classify(snapshot, 0).kind, RegionKind::anonymous);
  EXPECT_NE(classify(snapshot, 0).evidence.find("thread 1"), std::string::npos);
  EXPECT_EQ(classify(snapshot, 2).kind, RegionKind::anonymous);
  EXPECT_EQ(classify(snapshot, 3).kind, RegionKind::thread_stack);
  EXPECT_NE(classify(snapshot, 3).evidence.find("2 threads"), std::string::npos);
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i)
    EXPECT_EQ(kind_of(snapshot, i), classify(snapshot, i).kind);
}

TEST(Classes, TraitsSayWhatElseIsTrue) {
  const Snapshot snapshot = snapshot_from_text(
      "1000-900000 rw-p 00000000 00:00 0 \nRss: 8192 kB\nLazyFree: 4096 kB\nAnonHugePages: 2048 kB\nSwap: 12 "
      "kB\n"
      "VmFlags: rd wr nr lo\n");
  const auto found = traits(snapshot.regions[0]);
  ASSERT_EQ(found.size(), 5U);
  EXPECT_NE(found[0].find("MAP_NORESERVE"), std::string::npos);
  EXPECT_NE(found[2].find("2048 of 8192 KiB"), std::string::npos);
  EXPECT_NE(found[3].find("LazyFree"), std::string::npos);
}

TEST(WatchText, NoLineIsWiderThanTheTerminal) {
  RegionTracker tracker;
  for (std::uint64_t i = 0; i < 20; ++i) {
    Snapshot snapshot =
        snapshot_from_text(region(0x7f0000000000, 0x7f0000000000 + (i + 1) * 0x100000, (i + 1) * 1024) +
                           "7f1000000000-7f1000100000 r-xp 00000000 fe:00 7 "
                           "/a/very/long/path/with/an/even/longer/name/libsomething.so.6\nRss: 4 kB\n");
    snapshot.time_ns = (i + 1) * second;
    snapshot.totals.rss_anon = (i + 1) << 20;
    tracker.add(std::move(snapshot));
  }
  WatchViewOptions options;
  options.recent_values = 8;
  const WatchView view = view_of(tracker, options);
  for (std::size_t width = 1; width < 200; ++width) {
    const auto lines = watch_table(view, {width, false, true}, 10);
    ASSERT_EQ(lines.size(), 3U);
    for (const WatchLine& line : lines) EXPECT_LE(columns(line.text), width) << line.text;
  }
  const auto lines = watch_table(view, {80, false, false}, 10);
  EXPECT_NE(lines[1].text.find("+60 MiB"), std::string::npos) << lines[1].text;
  EXPECT_NE(lines[1].text.find("anonymous 7f0000000000"), std::string::npos) << lines[1].text;
  EXPECT_NE(lines[2].text.find("libsomething"), std::string::npos) << lines[2].text;
  EXPECT_EQ(watch_headline(view), "RssAnon +60 MiB/min, 100 % of the growth in 1 region");
  EXPECT_EQ(watch_table(view, {80, false, false}, 1).size(), 2U);
}

TEST(WatchText, FactsFitAndTheCostIsTheLastToGo) {
  WatchView view;
  view.seconds = 3600;
  view.regions = 100'000;
  view.threads = 1234;
  WatchFacts facts;
  facts.pid = 4'194'000;
  facts.comm = "a_server_of_15_c";
  facts.mapping_limit = 262'144;
  facts.cpu_seconds = 36;
  facts.smaps_interval = 20;
  for (std::size_t width = 1; width < 200; ++width) {
    const std::string text = watch_facts(view, facts, width);
    EXPECT_LE(columns(text), width) << text;
    EXPECT_TRUE(width < 24 || text.find("cost 1.0 % of a CPU") != std::string::npos) << text;
  }
  const std::string all = watch_facts(view, facts, 200);
  for (const char* const part :
       {"pid 4194000", "1,234 threads", "100,000 of 262,144 mappings", "smaps every 20 s"})
    EXPECT_NE(all.find(part), std::string::npos) << all;
  facts.comm = "server";
  facts.smaps_interval = 1;
  EXPECT_NE(watch_facts(view, facts, 80).find("mappings"), std::string::npos);
}

TEST(WatchText, ALineForALogShowsSharedMemoryToo) {
  RegionTracker tracker;
  tracker.add_totals(second, {1 << 20, 0, 0, 0, 0}, 1);
  tracker.add_totals(2 * second, {1 << 20, 0, 3 << 20, 0, 0}, 1);
  const std::string text = watch_line(view_of(tracker, {}), "");
  EXPECT_NE(text.find("RssAnon 1 MiB (0 B)  RssShmem +3 MiB"), std::string::npos) << text;
}

TEST(WatchText, WithoutATrendThereIsNoRate) {
  RegionTracker tracker;
  const auto rate_after = [&](std::uint64_t seconds, std::uint64_t kib) {
    Snapshot snapshot = snapshot_from_text(region(0x7f0000000000, 0x7f0010000000, kib));
    snapshot.time_ns = (seconds + 1) * second;
    tracker.add(std::move(snapshot));
    return watch_table(view_of(tracker, {}), {80, false, false}, 10)[1].text.substr(0, 10);
  };
  EXPECT_EQ(rate_after(0, 1024), "         -");
  EXPECT_EQ(rate_after(1, 2048), "  ~+60 MiB");  // once is no trend
  for (std::uint64_t i = 2; i < 20; ++i) rate_after(i, 1024 * (i + 1));
  EXPECT_EQ(rate_after(20, 1024 * 21), "   +60 MiB");
  for (std::uint64_t i = 21; i < 100; ++i) rate_after(i, 1024 * 21);
  EXPECT_EQ(rate_after(100, 1024 * 21), "       0 B");  // a plateau grows no more
}

TEST(WatchText, SparklineAndMappings) {
  const auto mib = static_cast<double>(1 << 20);
  EXPECT_EQ(sparkline({0, mib, 2 * mib, 3 * mib, 4 * mib, 5 * mib, 6 * mib, 7 * mib}, false), "_.:-=+*#");
  // Growth of a large region is as high as that of a small one; a page more or less is no growth.
  EXPECT_EQ(sparkline({9000 * mib, 9000 * mib, 9001 * mib}, false), "__#");
  EXPECT_EQ(sparkline({mib, mib + 4096, mib}, false), "___");
  EXPECT_EQ(sparkline({5, 5, 5}, false), "___");
  EXPECT_EQ(sparkline({0, mib}, true), "▁█");
  EXPECT_TRUE(sparkline({}, true).empty());
  EXPECT_EQ(mappings_text(1204, 65530), "1,204 of 65,530 mappings");
  EXPECT_NE(mappings_text(64000, 65530).find("vm.max_map_count"), std::string::npos);
}

}  // namespace
}  // namespace whomap
