// SPDX-License-Identifier: Apache-2.0
// Runs the load: one shell command after the other, each with an end.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/verify/process_group.h"
#include "core/verify/run.h"

namespace whomap {

/// Runs ExerciseRecord::command by /bin/sh -c, as it was given: who may write this command line may run
/// anything anyway. One run at a time; what a run leaves in the background lives until the end of verify.
class Exercise {
 public:
  /// `environment` is added to whomap's own. `timeout_seconds` ends one run, which then counts as failed.
  static Result<Exercise> create(ExerciseRecord& record,
                                 std::vector<std::pair<std::string, std::string>> environment,
                                 double timeout_seconds);

  enum class Ended { by_itself, given_up };

  /// One run to its end, counted in the record. When one of the `watched` descriptors becomes readable, the
  /// run is killed, not counted, and given_up returned.
  Result<Ended> run(const std::vector<int>& watched);

 private:
  Exercise(ExerciseRecord& record, std::vector<std::pair<std::string, std::string>> environment,
           double timeout_seconds, ProcessGroup group, UniqueFd output_read, UniqueFd output_write)
      : record_(&record),
        environment_(std::move(environment)),
        timeout_seconds_(timeout_seconds),
        group_(std::move(group)),
        output_read_(std::move(output_read)),
        output_write_(std::move(output_write)) {}

  void drain(std::string& last_words) const;
  void count(int wait_status, bool timed_out, const std::string& last_words) const;

  ExerciseRecord* record_;
  std::vector<std::pair<std::string, std::string>> environment_;
  double timeout_seconds_;
  ProcessGroup group_;
  UniqueFd output_read_, output_write_;
};

}  // namespace whomap
