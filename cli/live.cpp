// SPDX-License-Identifier: Apache-2.0
#include "cli/live.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/process/memory_sharers.h"
#include "core/process/permission.h"

namespace whomap::cli {

Result<OpenTarget> open_target(pid_t pid) {
  auto target = Target::open(pid);
  if (!target) return tl::make_unexpected(target.error());
  if (const auto obstacle = attach_obstacle(read_access_facts(*target)))
    return tl::make_unexpected(*obstacle);
  const auto maps = read_maps(pid);
  if (!maps) return tl::make_unexpected(maps.error());
  OpenTarget open{std::move(*target), {}};
  open.modules.update(open.target, maps->vmas);
  return open;
}

Result<Plan> plan_for(const OpenTarget& target, const std::string& plan_file, const PlanOptions& options) {
  if (plan_file.empty()) return make_plan(target.target, target.modules, options);
  auto plan = load_plan(plan_file);
  if (!plan) return plan;
  return rebase_plan(*plan, target.target, target.modules);
}

Result<UniqueFd> interrupts_as_fd() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, each);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a reader of ours that goes away must not end us before the target is let go
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd.valid()) return fail(ErrorCode::kernel_feature, "signalfd failed", {}, errno);
  return fd;
}

std::function<void(const RecordingProgress&)> progress_printer(const CommonOptions& common, double seconds) {
  if (common.quiet || ::isatty(STDERR_FILENO) != 1) return [](const RecordingProgress&) {};
  return [seconds](const RecordingProgress& at) {
    std::fputs(fmt::format("\rtracing: {:.0f} of {:.0f} s, {} captured \x1b[K", at.seconds, seconds,
                           count_text(at.events, "call"))
                   .c_str(),
               stderr);
    std::fflush(stderr);
  };
}

void print_ending(const CommonOptions& common, const std::string& path, const RecordingResult& result) {
  if (common.quiet) return;
  const std::string next =
      path == "-" ? "save it in a file for whomap match" : "whomap match " + printable(path);
  const char* const clear = ::isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "";
  std::fputs(fmt::format("{}whomap: wrote {}: {} ({} failed, {} lost), ended by {}; next: {}\n", clear,
                         path == "-" ? "the trace to standard output" : printable(path),
                         count_text(result.end.events, "call"), result.end.failed_calls, result.end.lost,
                         result.end.reason, next)
                 .c_str(),
             stderr);
}

std::optional<ExitStatus> recording_status(const RecordingResult& result) {
  if (result.output) return report_error(*result.output);
  if (result.end.reason == "interrupted") return ExitStatus::interrupted;
  if (result.target) return report_error(*result.target);
  return std::nullopt;
}

std::optional<Error> shared_memory_obstacle(const Target& target) {
  const std::vector<pid_t> sharers = memory_sharers(target);
  if (sharers.empty()) return std::nullopt;
  return Error{
      ErrorCode::unsupported_target,
      fmt::format("process {} shares its memory with process {} (clone with CLONE_VM), which no tracer of it "
                  "stops: what is put into its code would end that one",
                  target.pid(), sharers.front()),
      "whomap watch shows what grows; perf or strace tell who maps (whomap import)"};
}

std::optional<Error> discard_unarmed(const RecordingOptions& recording, const RecordingResult& result) {
  if (recording.path != "-") ::unlink(recording.path.c_str());
  if (result.end.reason == "interrupted")
    return Error{ErrorCode::interrupted, "interrupted before the trace began", {}};
  return result.target;
}

}  // namespace whomap::cli
