// SPDX-License-Identifier: Apache-2.0
// Against a map of single pages.
#include "core/match/interval_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace whomap {
namespace {

constexpr std::uint64_t pages = 600;

/// Owner of each page; absent: free.
using Model = std::map<std::uint64_t, std::uint32_t>;

Model model_of(const IntervalMap& map) {
  Model model;
  std::uint64_t previous_end = 0;
  for (const auto& [start, interval] : map.copy()) {
    EXPECT_EQ(start, interval.range.start);
    EXPECT_GE(start, previous_end) << "intervals overlap or are out of order";
    EXPECT_GT(interval.range.end, start);
    previous_end = interval.range.end;
    for (std::uint64_t page = start; page < interval.range.end; ++page) model[page] = interval.stack;
  }
  return model;
}

LiveInterval interval(std::uint64_t start, std::uint64_t end, std::uint32_t stack, std::uint64_t since_ns) {
  return {{start, end}, stack, 9, since_ns, static_cast<pid_t>(stack + 1), stack + 2, stack % 7 == 0};
}

/// Most intervals are a page long, so that chunks split, merge and vanish.
TEST(IntervalMap, IsAMapOfPages) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 random(seed);
    IntervalMap map;
    Model model;
    for (std::uint32_t step = 1; step <= 60'000; ++step) {
      const std::uint64_t start = random() % pages;
      const std::uint64_t end = std::min(pages, start + 1 + (random() % 8 == 0 ? random() % 60 : 0));
      // Filled and emptied by turns.
      const bool insert = random() % 8 < (step / 2'000 % 2 == 0 ? 6U : 2U);
      Model taken;
      const std::uint64_t stayed = map.cut({start, end}, 1, [&](const LiveInterval& piece) {
        EXPECT_EQ(piece.tid, static_cast<pid_t>(piece.stack + 1));
        EXPECT_EQ(piece.site, piece.stack + 2);
        EXPECT_EQ(piece.number, 9);
        EXPECT_EQ(piece.grows_down, piece.stack % 7 == 0);
        for (std::uint64_t page = piece.range.start; page < piece.range.end; ++page)
          taken[page] = piece.stack;
      });
      ASSERT_EQ(stayed, 0U);
      Model expected;
      for (std::uint64_t page = start; page < end; ++page)
        if (const auto found = model.find(page); found != model.end()) {
          expected.insert(*found);
          model.erase(found);
        }
      ASSERT_EQ(taken, expected) << seed << " " << step;
      ASSERT_FALSE(map.any_in({start, end}));
      if (insert) {
        map.insert(interval(start, end, step, 1));
        for (std::uint64_t page = start; page < end; ++page) model[page] = step;
      }
      const std::uint64_t from = random() % pages;
      const auto next = model.lower_bound(from);
      ASSERT_EQ(map.any_in({from, from + 1}), next != model.end() && next->first == from);
      if (step % 500 == 0) {
        ASSERT_EQ(model_of(map), model) << seed << " " << step;
      }
    }
  }
}

TEST(IntervalMap, YoungerIntervalsStay) {
  IntervalMap map;
  for (std::uint32_t i = 0; i < 100; ++i) map.insert(interval(i * 10, i * 10 + 10, i, i));
  std::uint32_t taken = 0;
  EXPECT_EQ(map.cut({0, 1'000}, 49, [&](const LiveInterval&) { ++taken; }), 50U);
  EXPECT_EQ(taken, 50U);
  EXPECT_EQ(map.size(), 50U);
  EXPECT_FALSE(map.any_in({0, 500}));
  EXPECT_TRUE(map.any_in({499, 501}));
  EXPECT_FALSE(map.any_in({600, 600})) << "nothing is in an empty range";
  std::vector<std::uint64_t> starts;
  map.each_from({500, 530}, [&](const LiveInterval& each) {
    starts.push_back(each.range.start);
    return true;
  });
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{500, 510, 520}));
  EXPECT_EQ(map.cut({505, 515}, 1'000, [](const LiveInterval&) {}), 0U);
  EXPECT_EQ(map.copy().at(500).range, (AddressRange{500, 505}));
  EXPECT_EQ(map.copy().at(515).range, (AddressRange{515, 520}));
}

}  // namespace
}  // namespace whomap
