// SPDX-License-Identifier: Apache-2.0
// Traces written down by hand, for the tests of match and report.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/match/match.h"
#include "core/trace/writer.h"

namespace whomap {

/// Innermost first: module (below /opt) and function; an empty function is one without a symbol.
inline Stack make_stack(std::uint32_t id, const std::vector<std::pair<std::string, std::string>>& frames) {
  Stack stack;
  stack.id = id;
  std::uint64_t offset = 0x1000;
  for (const auto& [module, function] : frames) {
    Frame frame;
    frame.module = "/opt/" + module;
    frame.build_id = "b1d0";
    frame.offset = offset += 0x10;
    if (!function.empty()) frame.function = function;
    stack.frames.push_back(frame);
  }
  return stack;
}

/// Builds a trace of ten seconds, or as many as `seconds` says. Times of calls are in milliseconds.
class MatchTest : public testing::Test {
 protected:
  static constexpr std::uint64_t page = 4096, mib = 1 << 20, area = 0x7f0000000000;

  void SetUp() override {
    std::string pattern = testing::TempDir() + "whomap-match-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    header_.target = {1234, 5678, "/opt/app", "app"};
    header_.engine = "gdb";
    header_.start_ns = start_ns;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static constexpr std::uint64_t start_ns = 1'000'000'000'000;
  static std::uint64_t at_ms(std::uint64_t ms) { return start_ns + ms * 1'000'000; }

  void call(std::int64_t number, std::array<std::uint64_t, 6> arguments, std::uint64_t result,
            std::uint32_t stack, std::uint64_t ms, pid_t tid = 1234) {
    TraceEvent event;
    event.call = {at_ms(ms), at_ms(ms) + 1000, tid, number, arguments, result, 0};
    event.stack = stack;
    events_.push_back(event);
  }
  void mmap(std::uint64_t at, std::uint64_t length, std::uint32_t stack, std::uint64_t ms, pid_t tid = 1234) {
    call(9, {0, length, 3, 0x22, ~std::uint64_t{0}, 0}, at, stack, ms, tid);
  }
  void munmap(std::uint64_t at, std::uint64_t length, std::uint32_t stack, std::uint64_t ms) {
    call(11, {at, length}, 0, stack, ms);
  }

  /// `text` is that of smaps or maps.
  static Snapshot snapshot(std::string_view text, std::uint64_t ms, std::uint64_t rss_anon,
                           std::uint64_t rss_file = 0, std::uint64_t threads = 4) {
    Snapshot made = snapshot_from_text(text);
    EXPECT_TRUE(made.unparsed.empty());
    made.time_ns = at_ms(ms);
    made.totals = {rss_anon, rss_file, 0, 0, 4096};
    made.threads = threads;
    return made;
  }
  static std::string region(std::uint64_t start, std::uint64_t end, std::uint64_t rss,
                            const std::string& name = "", const std::string& perms = "rw-p") {
    return fmt::format("{:x}-{:x} {} 00000000 00:00 0 {}\nRss: {} kB\n", start, end, perms, name, rss / 1024);
  }

  std::string write(bool with_end = true) {
    const std::string path = folder_ + "/t.trace";
    auto writer = TraceWriter::create(path, true, header_);
    EXPECT_TRUE(writer.has_value());
    for (const Stack& stack : stacks_) EXPECT_TRUE(writer->stack(stack));
    if (!snapshots_.empty()) {
      EXPECT_TRUE(writer->snapshot(snapshots_.front()));
    }
    for (const TraceEvent& event : events_) EXPECT_TRUE(writer->event(event));
    for (std::size_t i = 1; i < snapshots_.size(); ++i) EXPECT_TRUE(writer->snapshot(snapshots_[i]));
    if (!with_end) {
      EXPECT_TRUE(writer->flush());
      return path;
    }
    TraceEnd end;
    end.reason = "time";
    end.end_ns = at_ms(10'000);
    end.hits = end.events = events_.size();
    end.threads = 4;
    EXPECT_TRUE(writer->end(end));
    return path;
  }

  Answer match(const MatchOptions& options = {}) {
    auto answer = match_trace(write(), options);
    EXPECT_TRUE(answer.has_value()) << to_line(answer.error());
    check_sums(*answer);
    return std::move(*answer);
  }

  /// The parts of the growth always add up to the whole.
  static void check_sums(const Answer& answer) {
    std::uint64_t rows = 0, regions = 0, region_growth = 0, unexplained = 0;
    for (const StackAnswer& row : answer.stacks) {
      rows += row.growth_bytes;
      EXPECT_LE(row.growth_bytes, row.live_bytes);
    }
    for (const RegionAnswer& each : answer.regions) {
      regions += each.explained_bytes;
      region_growth += static_cast<std::uint64_t>(each.size_delta);
    }
    for (const Unexplained& part : answer.unexplained) unexplained += part.bytes;
    EXPECT_EQ(answer.growth.explained_bytes + answer.growth.unexplained_bytes, answer.growth.mapped_bytes);
    EXPECT_EQ(rows, answer.growth.explained_bytes);
    EXPECT_EQ(regions, answer.growth.explained_bytes);
    EXPECT_EQ(region_growth, answer.growth.mapped_bytes);
    EXPECT_EQ(unexplained, answer.growth.unexplained_bytes);
  }

  TraceHeader header_;
  std::vector<Stack> stacks_;
  std::vector<TraceEvent> events_;
  std::vector<Snapshot> snapshots_;
  std::string folder_;
};

}  // namespace whomap
