// SPDX-License-Identifier: Apache-2.0
// A live trace from the side that receives: captures come in over the channel, are unwound and
// deduplicated while the trace goes on, and become a trace file. Stack copies are dropped at once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/capture/capture_source.h"
#include "core/plan/plan.h"
#include "core/process/target.h"
#include "core/process/vma.h"
#include "core/trace/records.h"

namespace whomap {

struct RecordingOptions {
  double seconds = 10;                    ///< from the moment the sites are watched
  std::optional<std::uint64_t> max_hits;  ///< captured calls
  double max_slowdown = 1;                ///< share of one thread's time, see SlowdownBudget
  std::uint64_t minimum_length = 0;       ///< shorter mmaps are only counted, bytes
  std::string path;                       ///< of the trace file
  bool overwrite = false;
  std::string engine = "gdb";
  /// What of the target's memory is the engine's and no growth of its; asked when the sites are watched.
  std::function<std::vector<AddressRange>()> own_memory = [] { return std::vector<AddressRange>{}; };
  std::vector<std::string> notes;  ///< about the engine, for the trace file
  int interrupt_fd = -1;           ///< becomes readable when the user wants the end
  /// What it means that the engine ends before it is told to.
  std::string engine_ended = "engine-stopped";
  double patience_seconds = 20;  ///< for the engine to arm, and later to let go
};

/// How long all threads of the target stood still outside the engine's own count.
struct StopTimes {
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;
  std::vector<std::string> notes = {};  ///< what the engine has to say at its end
};

struct RecordingProgress {
  double seconds = 0;
  std::uint64_t events = 0;
};

struct RecordingResult {
  TraceEnd end;
  bool armed = false;            ///< the engine got as far as watching
  bool engine_finished = false;  ///< it said that it has let go; else it died or hangs
  std::optional<Error> target;   ///< the target ended or was replaced meanwhile
  std::optional<Error> output;   ///< the trace file could not be written to its end
};

/// Runs until time, hits, an interrupt, the end of the target or of the engine; then waits for the engine to
/// let go, calls `let_go` (the engine's clean-up; at once when the engine died), symbolises, and finishes the
/// file. Errors: the trace file cannot be created.
Result<RecordingResult> record(const Target& target, const Plan& plan, CaptureSource& source,
                               const RecordingOptions& options,
                               const std::function<void(const RecordingProgress&)>& progress,
                               std::function<StopTimes(bool engine_finished)> let_go);

}  // namespace whomap
