// SPDX-License-Identifier: Apache-2.0
// What the commands that look at a live process share: opening it, interrupts, progress, the ending line.
#pragma once

#include <functional>
#include <string>

#include "cli/command.h"
#include "core/base/unique_fd.h"
#include "core/elf/module_map.h"
#include "core/plan/make_plan.h"
#include "core/process/target.h"
#include "core/trace/default_name.h"
#include "core/trace/recording.h"

namespace whomap::cli {

/// Why the target's code must not be changed although it could be: another process executes it too.
std::optional<Error> shared_memory_obstacle(const Target& target);

/// A target that may be traced, with its modules read.
struct OpenTarget {
  Target target;
  ModuleMap modules;
};
/// Errors: those of Target::open, attach_obstacle and reading /proc/PID/maps.
Result<OpenTarget> open_target(pid_t pid);

/// The plan of FILE moved to this process, or a new one when `plan_file` is empty.
Result<Plan> plan_for(const OpenTarget& target, const std::string& plan_file, const PlanOptions& options);

/// INT, TERM and HUP from now on make this descriptor readable instead of ending the program.
Result<UniqueFd> interrupts_as_fd();

/// Shows the running trace on standard error when that is a terminal and -q was not given.
std::function<void(const RecordingProgress&)> progress_printer(const CommonOptions& common, double seconds);

/// "wrote FILE: 12 calls, 3 lost; next: whomap match FILE" on standard error.
void print_ending(const CommonOptions& common, const std::string& path, const RecordingResult& result);

/// The status that the recording alone decides: interrupted, output failed, target ended or replaced.
/// Errors are printed. Nothing when the answer decides.
std::optional<ExitStatus> recording_status(const RecordingResult& result);

/// For a trace in which nothing was watched: removes its file, which holds nothing. The reason, when it is
/// the user's or the target's; else the engine has to say it.
std::optional<Error> discard_unarmed(const RecordingOptions& recording, const RecordingResult& result);

}  // namespace whomap::cli
