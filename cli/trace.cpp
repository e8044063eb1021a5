// SPDX-License-Identifier: Apache-2.0
// whomap trace: capture for a while, then answer.
#include <unistd.h>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/live.h"
#include "core/capture/code_guard.h"
#include "core/plan/script.h"
#include "core/process/permission.h"
#include "gdb_plugin/gdb_process.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

struct TraceOptions {
  std::string pid, plan_file, output, format, engine;
};

void add_options(CommandLine& line, TraceOptions& options) {
  line.options().add_options()("pid,p", po::value(&options.pid)->value_name("PID")->required(),
                               "the process that grows")(
      "engine", po::value(&options.engine)->value_name("NAME")->default_value("auto"), "auto or gdb")(
      "plan", po::value(&options.plan_file)->value_name("FILE"),
      "use a saved plan (whomap plan --format json)")(
      "output,o", po::value(&options.output)->value_name("FILE"),
      "the trace file; - is standard output, then no answer is printed")(
      "format", po::value(&options.format)->value_name("NAME")->default_value("text"),
      "of the answer: text or json");
  add_capture_options(line);
}

/// The answer from the trace that was just written, as whomap match gives it.
ExitStatus print_answer(const std::string& path, AnswerShape shape, const CommonOptions& common) {
  const auto answer = match_trace(path);
  if (!answer) return report_error(answer.error());
  if (auto wrote = write_answer(*answer, shape, "-", common); !wrote) return report_error(wrote.error());
  return answer_status(*answer);
}

void say(const CommonOptions& common, const std::string& text) {
  if (!common.quiet) std::fputs(fmt::format("whomap: {}\n", printable(text)).c_str(), stderr);
}

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

/// Runs GDB over the plan and records. The trace file is gone again when nothing was watched.
Result<RecordingResult> trace_with_gdb(const OpenTarget& target, const Plan& plan,
                                       const RecordingOptions& recording, const CommonOptions& common) {
  const auto plugin = find_plugin_folder();
  if (!plugin) return tl::make_unexpected(plugin.error());
  const auto guard = CodeGuard::record(target.target, plan);
  if (!guard) return tl::make_unexpected(guard.error());
  auto channel = make_channel();
  if (!channel) return tl::make_unexpected(channel.error());
  auto gdb = GdbProcess::start(std::move(channel->tracer), [&](int channel_fd, int status_fd) {
    ScriptOptions script;
    script.plugin_folder = *plugin;
    script.channel_fd = channel_fd;
    script.status_fd = status_fd;
    return gdb_script(plan, script);
  });
  if (!gdb) return tl::make_unexpected(gdb.error());

  bool gdb_ended_well = false;
  auto result = record(
      target.target, plan, CollectorChannel(std::move(channel->collector)), recording,
      progress_printer(common, recording.seconds), [&](bool) {
        constexpr double patience_seconds = 10;
        const bool by_itself = gdb->wait(patience_seconds, [&] { (void)guard->take_out(target.target); });
        const auto status = gdb->status();
        gdb_ended_well = by_itself && !status.empty() && status.back().value("state", "") == "ended";
        report_outcome(common, guard->restore(target.target, !gdb_ended_well));
      });
  if (common.verbose) std::fputs(fmt::format("--- GDB printed:\n{}---\n", gdb->output()).c_str(), stderr);
  if (!result) return result;
  for (const auto& line : gdb->status())
    if (line.value("hit_errors", 0) > 0)
      say(common, fmt::format("{} hits could not be recorded: {}", line.value("hit_errors", 0),
                              line.value("first_hit_error", "")));
  if (!result->armed) {
    if (recording.path != "-") ::unlink(recording.path.c_str());  // it holds nothing
    if (result->end.reason == "interrupted")
      return fail(ErrorCode::interrupted, "interrupted before the trace began");
    if (result->target) return tl::make_unexpected(*result->target);
    // Another tracer may have been quicker.
    if (const auto obstacle = attach_obstacle(read_access_facts(target.target)))
      return tl::make_unexpected(*obstacle);
    return tl::make_unexpected(gdb->diagnose());
  }
  if (!gdb_ended_well) say(common, "GDB did not end by itself; the answer is from what came before");
  return result;
}

/// A thread that sleeps is woken by an attach and goes back to sleep with restart_syscall, a call that a
/// seccomp filter written from a list of the program's own calls may kill for (seen with clock_nanosleep).
void warn_of_seccomp(const OpenTarget& target, const CommonOptions& common) {
  const auto status = read_status(target.target.pid());
  constexpr int filter = 2;
  if (status && status->seccomp == filter)
    say(common,
        fmt::format(
            "process {} has a seccomp filter; if that kills for restart_syscall, attaching ends the process",
            target.target.pid()));
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("trace", "-p PID [OPTIONS]", "which code maps the memory of a growing process");
  TraceOptions options;
  add_options(line, options);
  if (const auto stop = line.parse(arguments)) return *stop;
  const CommonOptions& common = line.common();
  if (options.engine != "auto" && options.engine != "gdb")
    return report_usage("trace",
                        fmt::format("the engine '{}' is not available, auto and gdb are", options.engine));
  const auto limits = capture_options(line);
  if (!limits) return report_usage("trace", limits.error());
  const auto shape = answer_shape(options.format, {AnswerShape::text, AnswerShape::json});
  if (!shape) return report_usage("trace", shape.error().happened);
  const auto pid = parse_pid(options.pid);
  if (!pid) return report_usage("trace", pid.error());

  const auto interrupts = interrupts_as_fd();
  if (!interrupts) return report_error(interrupts.error());
  auto target = open_target(*pid);
  if (!target) return report_error(target.error());
  const auto plan = plan_for(*target, options.plan_file, PlanOptions{limits->syscalls, {}});
  if (!plan) return report_error(plan.error());

  warn_of_seccomp(*target, common);
  RecordingOptions recording;
  recording.seconds = limits->seconds;
  recording.max_hits = limits->max_hits;
  recording.path = line.has("output") ? options.output : default_trace_name(target->target.identity());
  recording.overwrite = common.force;
  recording.interrupt_fd = interrupts->get();
  const auto result = trace_with_gdb(*target, *plan, recording, common);
  if (!result) return report_error(result.error());
  print_ending(common, recording.path, *result);
  const ExitStatus answered =
      recording.path == "-" ? ExitStatus::done : print_answer(recording.path, *shape, common);
  return recording_status(*result).value_or(answered);
}

}  // namespace

const CommandInfo trace_command{
    "trace", "capture the calls that map memory, and name the code behind the growth", run};

}  // namespace whomap::cli
