// SPDX-License-Identifier: Apache-2.0
// Runs made in a test, and recorded ones.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/base/files.h"
#include "core/verify/judge.h"
#include "core/verify/saved.h"

namespace whomap {

inline constexpr double mib = 1024.0 * 1024;

/// A measurement in which `anon` MiB are anonymous and everything else stands still. The process works.
inline Measurement at(double seconds, double anon, bool point) {
  Measurement measurement;
  measurement.point = point;
  measurement.seconds = seconds;
  measurement.start_time = 1000;
  const auto bytes = [](double size) { return static_cast<std::uint64_t>(size * mib); };
  measurement.memory = {bytes(anon + 60), bytes(anon), bytes(60), 0, 0, bytes(3), 0, 500, 12, 0};
  if (point) measurement.most_mappings = 500;
  measurement.cpu_seconds = seconds / 10;
  return measurement;
}

/// The points of a run without an exercise.
inline VerifyRun run_of(const std::vector<Measurement>& measurements) {
  VerifyRun run;
  run.target = {4090, 1000, "/usr/bin/server", "server"};
  run.measurements = measurements;
  return run;
}

/// Three points and 40 readings between two of them, 30 s apart; `value` gives MiB by seconds.
template <class Value>
VerifyRun dense_run(Value value, std::size_t points = 3, double interval = 30) {
  constexpr std::size_t readings = 40;
  std::vector<Measurement> measurements;
  for (std::size_t i = 0; i <= (points - 1) * readings; ++i) {
    const double seconds = interval * static_cast<double>(i) / readings;
    measurements.push_back(at(seconds, value(seconds), i % readings == 0));
  }
  VerifyRun run = run_of(measurements);
  run.samples = points;
  run.interval_seconds = interval;
  return run;
}

inline VariantResult recorded(const std::string& name) {
  const auto text = read_file(std::string(TEST_DATA_DIR) + "/verify/" + name);
  EXPECT_TRUE(text) << name;
  auto run = parse_saved_run(text.value_or(""), name);
  EXPECT_TRUE(run) << (run ? "" : to_line(run.error()));
  return run.value_or(VariantResult{});
}

inline Verdict verdict_of(const VerifyRun& run, const JudgeLimits& limits = {}) {
  return judge(run, limits).verdict;
}

}  // namespace whomap
