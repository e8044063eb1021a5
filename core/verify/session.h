// SPDX-License-Identifier: Apache-2.0
// One verification from its first to its last point: load, measurements, and what can go wrong between them.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/verify/meter.h"
#include "core/verify/run.h"

namespace whomap {

struct SessionOptions {
  std::string exercise;       ///< empty: the load comes from elsewhere
  std::uint64_t count = 200;  ///< runs of the exercise, spread evenly from the first to the last point
  std::uint64_t operations_per_run = 1;
  double exercise_timeout_seconds = 60;
  std::uint64_t samples = 3;
  double interval_seconds = 30;  ///< at least, between two points; an exercise may need more
  std::string command;           ///< recorded only
  std::string variant;           ///< WHOMAP_VARIANT of the exercise: "subject" or "control"
  int interrupt_fd = -1;
};

struct SessionEvents {
  /// The run so far; its last measurement is point `number`, counted from 1.
  std::function<void(const VerifyRun& so_far, std::uint64_t number)> point;
  /// Once, at the first exercise that fails.
  std::function<void(const ExerciseRecord& exercise)> exercise_failed;
  /// Around the judged part; an error ends the session with it.
  std::function<Result<void>(const Target& target)> judged_part_begins;
  std::function<Result<void>()> judged_part_ends;
};

/// The run as it would begin: its options, no measurements.
VerifyRun planned_run(const SessionOptions& options, const TargetIdentity& target, bool tree);

/// Errors are those of whomap itself (no shell, no pipe). An interrupt, or a target that ends, is a way for a
/// run to end: see VerifyRun::ending.
Result<VerifyRun> run_session(Meter& meter, const SessionOptions& options, const SessionEvents& events);

}  // namespace whomap
