// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/base/clock.h"
#include "core/capture/tsc_clock.h"

namespace whomap {
namespace {

TEST(TscClock, FollowsTheClock) {
  TscClock clock;
  std::uint64_t worst = 0;
  const std::uint64_t end = monotonic_ns() + 50'000'000;
  while (monotonic_ns() < end) {
    const ClockPoint now = read_clocks();
    const std::uint64_t converted = clock.to_ns(now.tsc);
    worst = std::max(worst, converted > now.ns ? converted - now.ns : now.ns - converted);
    clock.add(now);
  }
  EXPECT_LT(worst, 1'000'000U);
}

TEST(TscClock, NeverChangesTheOrder) {
  // A clock at 2 ticks a nanosecond that is slewed forth and back.
  TscClock clock({1000, 500}, {3000, 1500});
  std::uint64_t tsc = 3000, ns = 1500, last = 0;
  for (int i = 0; i < 200; ++i) {
    tsc += 2000;
    ns += i % 20 < 10 ? 1100U : 900U;
    for (std::uint64_t t = tsc - 2000; t < tsc; t += 100) {
      EXPECT_GE(clock.to_ns(t), last);
      last = clock.to_ns(t);
    }
    const std::uint64_t before = clock.to_ns(tsc - 1);
    clock.add({tsc, ns});
    EXPECT_EQ(clock.to_ns(tsc - 1), before);
    EXPECT_LT(std::abs(clock.last_error_ns()), 2000);
  }
}

TEST(TscClock, IsRefusedWhereItIsNotOneSteadyClock) {
  const std::string good = "processor\t: 0\nflags\t\t: fpu constant_tsc rep_good nonstop_tsc cpuid\n";
  EXPECT_EQ(why_tsc_is_unusable(good, "tsc hpet acpi_pm \n"), "");
  EXPECT_EQ(why_tsc_is_unusable(good, "kvm-clock tsc"), "");
  EXPECT_NE(why_tsc_is_unusable(good, "hpet acpi_pm \n"), "");
  EXPECT_NE(why_tsc_is_unusable(good, "tsc-early hpet"), "");
  EXPECT_NE(why_tsc_is_unusable(good + "processor\t: 1\nflags\t\t: fpu constant_tsc\n", "tsc"), "");
  EXPECT_NE(why_tsc_is_unusable("flags\t: fpu nonstop_tsc_not constant_tsc", "tsc"), "");
  EXPECT_NE(why_tsc_is_unusable("", "tsc"), "");
}

}  // namespace
}  // namespace whomap
