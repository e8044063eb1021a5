// SPDX-License-Identifier: Apache-2.0
// How often the judge is wrong, on recorded noise: RssAnon of two services (Python, threads that build and
// drop data, a bounded cache, cyclic garbage), read every 80 ms for minutes. Each run takes another stretch
// of it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "tests/unit/verify_support.h"

namespace whomap {
namespace {

/// MiB.
std::vector<double> recorded_noise(const std::string& name) {
  std::istringstream text(read_file(std::string(TEST_DATA_DIR) + "/verify/" + name).value_or(""));
  std::vector<double> values;
  for (double kib = 0; text >> kib;) values.push_back(kib / 1024);
  EXPECT_GT(values.size(), 2000U) << name;
  return values;
}

struct Tally {
  int fixed = 0;
  int not_fixed = 0;
  int inconclusive = 0;
};

/// 100 runs over stretches of `noise`, scaled, on top of a leak of `leak` MiB a minute.
Tally tally(const std::vector<double>& noise, double scale, double leak, std::size_t points, double interval,
            unsigned seed) {
  std::mt19937 random(seed);
  constexpr double recorded_every = 0.08;
  const auto needed =
      static_cast<std::size_t>(interval * static_cast<double>(points - 1) / recorded_every) + 2;
  std::uniform_int_distribution<std::size_t> begin(0, noise.size() - needed);
  Tally result;
  for (int run = 0; run < 100; ++run) {
    const std::size_t first = begin(random);
    const Verdict verdict = verdict_of(dense_run(
        [&](double seconds) {
          const auto reading = static_cast<std::size_t>(std::lround(seconds / recorded_every));
          return 500 + noise[first + reading] * scale + leak * seconds / 60;
        },
        points, interval));
    if (verdict.kind == VerdictClass::fixed)
      ++result.fixed;
    else if (verdict.kind == VerdictClass::not_fixed)
      ++result.not_fixed;
    else if (verdict.kind == VerdictClass::inconclusive)
      ++result.inconclusive;
    else
      ADD_FAILURE() << verdict.text;
  }
  return result;
}

struct Setting {
  std::size_t points;
  double interval;
};

class VerifyStatistics : public testing::TestWithParam<Setting> {};

TEST_P(VerifyStatistics, FlatButNoisyIsHardlyEverCalledNotFixed) {
  const auto [points, interval] = GetParam();
  for (const char* file : {"noise_medium.txt", "noise_strong.txt"}) {
    const auto noise = recorded_noise(file);
    for (const double scale : {0.1, 0.3, 1.0}) {
      const Tally result = tally(noise, scale, 0, points, interval, 1);
      EXPECT_LE(result.not_fixed, 5) << file << " times " << scale << ": " << result.fixed << " fixed, "
                                     << result.inconclusive << " inconclusive";
    }
  }
}

TEST_P(VerifyStatistics, ASlowLeakIsNeverCalledFixed) {
  const auto [points, interval] = GetParam();
  for (const char* file : {"noise_medium.txt", "noise_strong.txt"}) {
    const auto noise = recorded_noise(file);
    for (const double scale : {0.0, 0.02, 0.1, 0.3, 1.0}) {
      const Tally result = tally(noise, scale, 20, points, interval, 2);
      EXPECT_EQ(result.fixed, 0) << file << " times " << scale << ": " << result.not_fixed << " not fixed, "
                                 << result.inconclusive << " inconclusive";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, VerifyStatistics,
                         testing::Values(Setting{3, 15}, Setting{3, 30}, Setting{3, 60}, Setting{6, 15},
                                         Setting{6, 30}, Setting{12, 15}),
                         [](const auto& setting) {
                           return "Points" + std::to_string(setting.param.points) + "Every" +
                                  std::to_string(static_cast<int>(setting.param.interval)) + "s";
                         });

// A judge that always says "inconclusive" would pass the two above.

TEST(VerifyStatisticsPower, LittleNoiseIsDecidedInAMinute) {
  const auto noise = recorded_noise("noise_medium.txt");
  EXPECT_GE(tally(noise, 0.005, 0, 3, 30, 3).fixed, 95);
  EXPECT_GE(tally(noise, 0.005, 20, 3, 30, 4).not_fixed, 95);
}

// A sawtooth of 12 MiB, 10 to 20 s long: 20 MiB a minute are lost in it for one minute, and not for three.
TEST(VerifyStatisticsPower, MoreNoiseIsDecidedByMoreTime) {
  const auto noise = recorded_noise("noise_medium.txt");
  EXPECT_EQ(tally(noise, 0.05, 0, 3, 30, 5).not_fixed, 0);
  EXPECT_GE(tally(noise, 0.05, 0, 12, 18, 5).fixed, 95);
  EXPECT_GE(tally(noise, 0.05, 20, 12, 18, 6).not_fixed, 95);
}

}  // namespace
}  // namespace whomap
