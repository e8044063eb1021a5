// SPDX-License-Identifier: Apache-2.0
// What the engines do with stubs: start them, and say how taking them out went.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/capture/ring_source.h"
#include "core/stub/supervisor.h"
#include "core/trace/recording.h"

namespace whomap::cli {

/// This program itself supervises, as another process.
Result<SupervisedStubs> start_stubs(const Plan& plan, const std::string& engine);

/// What is not recorded but counted.
struct RecordLimits {
  std::uint64_t minimum_length = 0;    ///< shorter mmaps, bytes
  std::uint64_t sample_interval = 0;   ///< one mmap for each so many bytes; 0: all
  std::uint64_t calls_per_second = 0;  ///< 0: no limit
};

/// The reader of their ring.
Result<std::unique_ptr<RingSource>> open_ring(const Target& target, const Plan& plan, SupervisedStubs& stubs,
                                              const RecordLimits& limits);
/// What the reader of a ring needs beside the state of the stubs.
struct RingFacts {
  UniqueFd fd;
  bool tsc_forbidden = false;
  std::vector<ThreadBase> threads;
};
Result<std::unique_ptr<RingSource>> open_ring(const Target& target, const Plan& plan, const StubState& state,
                                              RingFacts facts, const RecordLimits& limits);
/// For the gdb engine: stubs for the sites that have room, if it can be done at all; ordinary breakpoints do
/// for the others. Says why when there are none.
Result<std::optional<SupervisedStubs>> put_stubs_in(const Plan& plan, const CommonOptions& common);

/// Takes them out, says what could not be undone, and returns how long the target stood still for both.
StopTimes remove_and_report(SupervisedStubs& stubs, const CommonOptions& common);

}  // namespace whomap::cli
