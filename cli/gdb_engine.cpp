// SPDX-License-Identifier: Apache-2.0
#include "cli/gdb_engine.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli/gdb_captures.h"
#include "cli/stub_outcome.h"
#include "core/capture/code_guard.h"
#include "core/plan/script.h"
#include "core/process/permission.h"
#include "core/stub/breakpoint_state.h"
#include "core/stub/supervisor.h"
#include "gdb_plugin/gdb_process.h"

namespace whomap::cli {
namespace {

/// After the tracer: is the target as it was?
void report_outcome(const CommonOptions& common, const CodeGuard::Outcome& outcome) {
  if (!outcome.restored.empty())
    say(common, fmt::format("put back the original code at {} places that a killed GDB had left changed",
                            outcome.restored.size()));
  for (const CodeGuard::Foreign& foreign : outcome.foreign)
    say(common,
        fmt::format(
            "the memory at {:#x} is not what it was before the trace (a library was unloaded, or code was "
            "patched by somebody else); it was left alone",
            foreign.address));
  for (const std::uint64_t address : outcome.failed)
    say(common, fmt::format("the code at {:#x} could not be checked or put back", address));
  if (outcome.resumed)
    say(common, "the killed GDB had left the process stopped; it was continued with SIGCONT");
}

}  // namespace

Result<RecordingResult> trace_with_gdb(const OpenTarget& target, const Plan& plan,
                                       const RecordingOptions& recording, bool with_stubs,
                                       const CommonOptions& common) {
  const auto plugin = find_plugin_folder();
  if (!plugin) return tl::make_unexpected(plugin.error());
  const auto path = find_gdb();
  if (!path) return tl::make_unexpected(path.error());
  std::optional<SupervisedStubs> stubs;
  std::unique_ptr<RingSource> ring;
  if (with_stubs) {
    auto put_in = put_stubs_in(plan, common);
    if (!put_in) return tl::make_unexpected(put_in.error());
    if (*put_in) {
      stubs.emplace(std::move(**put_in));
      auto opened = open_ring(target.target, plan, *stubs, {recording.minimum_length, 0, 0});
      if (!opened) return tl::make_unexpected(opened.error());
      ring = std::move(*opened);
    }
  }
  const Plan rest = stubs ? without_stubs(plan, stubs->installed().state) : plan;
  const auto guard = CodeGuard::record(target.target, rest);
  if (!guard) return tl::make_unexpected(guard.error());
  std::optional<BreakpointState> breakpoints;
  if (!stubs) {
    auto written = BreakpointState::write(target.target, rest);
    if (!written) return tl::make_unexpected(written.error());
    breakpoints.emplace(std::move(*written));
  }
  auto channel = make_channel();
  if (!channel) return tl::make_unexpected(channel.error());
  auto gdb = GdbProcess::start(*path, std::move(channel->tracer), [&](int channel_fd, int status_fd) {
    ScriptOptions script;
    script.plugin_folder = *plugin;
    script.channel_fd = channel_fd;
    script.status_fd = status_fd;
    if (stubs) script.stubs = to_json(stubs->installed().state);
    return gdb_script(rest, script);
  });
  if (!gdb) return tl::make_unexpected(gdb.error());

  bool gdb_ended_well = false;
  RecordingOptions options = recording;
  if (stubs) options.own_memory = [&stubs] { return own_memory(stubs->installed().state); };
  const auto captures = GdbCaptures::open(std::move(channel->collector), gdb->pid(), std::move(ring));
  if (!captures) return tl::make_unexpected(captures.error());
  auto result = record(
      target.target, plan, (*captures)->source(), options, progress_printer(common, recording.seconds),
      [&](bool) {
        constexpr double patience_seconds = 10;
        const bool by_itself = gdb->wait(patience_seconds, [&] { (void)guard->take_out(target.target); });
        const auto status = gdb->status();
        gdb_ended_well = by_itself && !status.empty() && status.back().value("state", "") == "ended";
        const CodeGuard::Outcome outcome = guard->restore(target.target, !gdb_ended_well);
        report_outcome(common, outcome);
        if (breakpoints && outcome.failed.empty()) breakpoints->forget();
        return stubs ? remove_and_report(*stubs, common) : StopTimes{};
      });
  if (common.verbose) std::fputs(fmt::format("--- GDB printed:\n{}---\n", gdb->output()).c_str(), stderr);
  if (!result) return result;
  for (const auto& line : gdb->status())
    if (line.value("hit_errors", 0) > 0)
      say(common, fmt::format("{} hits could not be recorded: {}", line.value("hit_errors", 0),
                              line.value("first_hit_error", "")));
  if (!result->armed) {
    if (const auto reason = discard_unarmed(recording, *result)) return tl::make_unexpected(*reason);
    if (gdb->was_killed()) return tl::make_unexpected(gdb->diagnose());  // what the target shows is its trace
    // Another tracer may have been quicker.
    if (const auto obstacle = attach_obstacle(read_access_facts(target.target)))
      return tl::make_unexpected(*obstacle);
    return tl::make_unexpected(gdb->diagnose());
  }
  if (!gdb_ended_well) say(common, "GDB did not end by itself; the answer is from what came before");
  return result;
}

}  // namespace whomap::cli
