// SPDX-License-Identifier: Apache-2.0
// The probe engine, as whomap trace runs it: recording stubs, and nothing attached.
#pragma once

#include <memory>

#include "cli/command.h"
#include "cli/live.h"
#include "cli/stub_outcome.h"
#include "core/plan/plan.h"
#include "core/stub/supervisor.h"
#include "core/trace/recording.h"

namespace whomap::cli {

/// Puts recording stubs in, records, takes them out. `passes_left_out`: as counted before. The trace file is
/// gone again when nothing was watched.
Result<RecordingResult> trace_with_probe(const OpenTarget& target, const Plan& plan,
                                         const RecordingOptions& recording, const RecordLimits& limits,
                                         double passes_left_out, const CommonOptions& common);

/// Has every site a stub, but for some whose number is only known at run time, few enough for debug registers
/// to tell whether they were passed at all?
bool probe_sees_everything(const Plan& plan);

/// Watched sites that cannot have a stub, as one line of text each.
/// How often a second the sites are passed, with calls of any kind, that the probe engine leaves out: counted
/// for a fifth of a second by debug registers. 0 also where that cannot be counted.
double count_passes_left_out(const Target& target, const Plan& plan);

std::vector<std::string> sites_without_stub(const Plan& plan);

}  // namespace whomap::cli
