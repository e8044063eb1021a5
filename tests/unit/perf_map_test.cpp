// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/perf_map.h"

#include <gtest/gtest.h>

namespace whomap {
namespace {

TEST(PerfMap, FindsTheNameOfTheCode) {
  const PerfMap map = PerfMap::parse("1000 100 first\n2000 80 LazyCompile:~load file.js:12\n");
  EXPECT_EQ(map.find(0x1000), "first");
  EXPECT_EQ(map.find(0x10ff), "first");
  EXPECT_EQ(map.find(0x1100), "");
  EXPECT_EQ(map.find(0xfff), "");
  EXPECT_EQ(map.find(0x2010), "LazyCompile:~load file.js:12");
}

// As `jcmd PID Compiler.perfmap` of JDK 17 writes it.
TEST(PerfMap, NumbersMayHaveAPrefix) {
  const PerfMap map = PerfMap::parse("0x00007f253c940b80 0x0000000000017d40 Interpreter\n0x0x10 0x10 none\n");
  EXPECT_EQ(map.find(0x7f253c940b80), "Interpreter");
  EXPECT_EQ(map.find(0x10), "");
}

TEST(PerfMap, TheLastNameForAPlaceCounts) {
  const PerfMap map = PerfMap::parse("1000 1000 old\n1800 100 new\n1000 10 newest\n");
  EXPECT_EQ(map.find(0x1008), "newest");
  EXPECT_EQ(map.find(0x1010), "old");
  EXPECT_EQ(map.find(0x1880), "new");
  EXPECT_EQ(map.find(0x1900), "old");
}

TEST(PerfMap, LinesThatAreNoneAreLeftOut) {
  for (const char* text : {"", "\n\n", "x 10 name\n", "1000\n", "1000 10\n", "1000 10 \n", "1000 0 name\n",
                           "ffffffffffffffff 10 name\n", "10000000000000000 10 name\n", "-1 10 name\n"})
    EXPECT_TRUE(PerfMap::parse(text).empty()) << text;
  EXPECT_EQ(PerfMap::parse("nonsense\n1000 10 name").find(0x1001), "name");
}

}  // namespace
}  // namespace whomap
