// SPDX-License-Identifier: Apache-2.0
// The gdb engine, as whomap trace runs it: stubs, GDB, the recorder, and the way back.
#pragma once

#include "cli/command.h"
#include "cli/live.h"
#include "core/plan/plan.h"
#include "core/trace/recording.h"

namespace whomap::cli {

/// Runs GDB over the plan and records. The trace file is gone again when nothing was watched.
Result<RecordingResult> trace_with_gdb(const OpenTarget& target, const Plan& plan,
                                       const RecordingOptions& recording, bool with_stubs,
                                       const CommonOptions& common);

}  // namespace whomap::cli
