// SPDX-License-Identifier: Apache-2.0
#include "core/trace/slowdown_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/process/processor_time.h"

namespace whomap {
namespace {

constexpr double ns = 1e9;

std::uint64_t waited(double seconds) {
  return static_cast<std::uint64_t>(seconds * ns);
}

TEST(SlowdownBudget, LooksAtTheLastSecond) {
  SlowdownBudget budget(0.1);
  for (int quarter = 0; quarter <= 40; ++quarter) budget.look(quarter * 0.25, waited(quarter * 0.25 * 0.02));
  EXPECT_NEAR(budget.spent(), 0.02, 1e-6);
  EXPECT_FALSE(budget.exceeded());
  // Ten cheap seconds do not pay for an expensive one.
  for (int quarter = 1; quarter <= 4; ++quarter)
    budget.look(10 + quarter * 0.25, waited(0.2 + quarter * 0.25 * 0.3));
  EXPECT_NEAR(budget.spent(), 0.3, 1e-6);
  EXPECT_TRUE(budget.exceeded());
}

TEST(SlowdownBudget, SaysNothingBeforeHalfASecond) {
  SlowdownBudget budget(0.1);
  budget.look(0, 0);
  budget.look(0.3, waited(0.3));
  EXPECT_EQ(budget.spent(), 0);
  EXPECT_FALSE(budget.exceeded());
  budget.look(0.55, waited(0.31));
  EXPECT_TRUE(budget.exceeded());
}

TEST(SlowdownBudget, OneOrMoreIsNoLimit) {
  SlowdownBudget budget(1);
  budget.look(0, 0);
  budget.look(2, waited(8));
  EXPECT_FALSE(budget.exceeded());
}

TEST(ProcessorTime, RisesWhileAThreadRuns) {
  const auto before = processor_time_ns(::getpid());
  if (!before) GTEST_SKIP() << "this kernel has no /proc/PID/schedstat";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
  }
  const auto after = processor_time_ns(::getpid());
  ASSERT_TRUE(after.has_value());
  EXPECT_GT(*after, *before);
  EXPECT_FALSE(processor_time_ns(0x7fffffff).has_value());
}

}  // namespace
}  // namespace whomap
