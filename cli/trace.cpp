// SPDX-License-Identifier: Apache-2.0
// whomap trace: capture for a while, then answer.
#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/gdb_engine.h"
#include "cli/gdb_proof.h"
#include "cli/known_causes.h"
#include "cli/live.h"
#include "cli/probe_engine.h"
#include "cli/region_history.h"
#include "cli/stub_outcome.h"
#include "core/match/history.h"
#include "core/process/interrupted_calls.h"
#include "core/process/permission.h"
#include "core/stub/foreign_stubs.h"
#include "gdb_plugin/gdb_process.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

struct TraceOptions {
  std::string pid, plan_file, regions, output, format, engine, min_length, sample_bytes, max_rate;
  bool no_stubs = false, no_attach_risk = false;
  RecordLimits limits;
};

void add_options(CommandLine& line, TraceOptions& options) {
  line.options().add_options()("pid,p", po::value(&options.pid)->value_name("PID")->required(),
                               "the process that grows")(
      "engine", po::value(&options.engine)->value_name("NAME")->default_value("auto"),
      "auto, probe (nothing is attached while it records; a microsecond a call) or gdb")(
      "min-length", po::value(&options.min_length)->value_name("BYTES"),
      "count mmap calls of less than this, without a record; 64K, 1M")(
      "sample-bytes", po::value(&options.sample_bytes)->value_name("BYTES"),
      "record one mmap for each so many bytes mapped (a power of two), count the others; probe only")(
      "max-rate", po::value(&options.max_rate)->value_name("N"),
      "record at most N mmap calls a second, count the others; probe only")(
      "no-stubs", po::bool_switch(&options.no_stubs),
      "put no code into the process: ordinary breakpoints, slower, and fatal for it if GDB is killed")(
      "no-attach-risk", po::bool_switch(&options.no_attach_risk),
      "refuse when a thread waits in a call that an attach makes return EINTR")(
      "plan", po::value(&options.plan_file)->value_name("FILE"),
      "use a saved plan (whomap plan --format json)")(
      "regions", po::value(&options.regions)->value_name("FILE"),
      "a watch of this process (whomap watch -o): its longer history of the regions goes into the answer")(
      "output,o", po::value(&options.output)->value_name("FILE"),
      "the trace file; - is standard output, then no answer is printed")(
      "format", po::value(&options.format)->value_name("NAME")->default_value("text"),
      "of the answer: text or json");
  add_capture_options(line);
  add_signatures_option(line);
}

/// Reads --min-length, --sample-bytes and --max-rate; a usage error that names the wrong one.
Result<void> read_limits(TraceOptions& options) {
  const auto read = [](const Result<std::uint64_t>& value, std::uint64_t& into) -> Result<void> {
    if (!value) return tl::make_unexpected(value.error());
    into = *value;
    return {};
  };
  if (!options.min_length.empty())
    if (auto got = read(bytes_value("--min-length", options.min_length), options.limits.minimum_length); !got)
      return got;
  if (!options.sample_bytes.empty())
    if (auto got = read(bytes_value("--sample-bytes", options.sample_bytes), options.limits.sample_interval);
        !got)
      return got;
  constexpr std::uint64_t most_calls = 1'000'000'000;
  if (!options.max_rate.empty())
    if (auto got =
            read(count_value("--max-rate", options.max_rate, 1, most_calls), options.limits.calls_per_second);
        !got)
      return got;
  if (options.limits.sample_interval == 0 && options.limits.calls_per_second == 0) return {};
  if (options.engine == "gdb" || options.no_stubs)
    return fail(ErrorCode::usage, "--sample-bytes and --max-rate need the probe engine");
  options.engine = "probe";
  return {};
}

/// The answer from the trace that was just written, as whomap match gives it.
ExitStatus print_answer(const std::string& path, const MatchOptions& match, AnswerShape shape,
                        const CommonOptions& common) {
  const auto answer = match_trace(path, match);
  if (!answer) return report_error(answer.error());
  if (auto wrote = write_answer(*answer, shape, "-", common); !wrote) return report_error(wrote.error());
  return answer_status(*answer);
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

/// The gdb engine, with stubs if the GDB at hand is fit for them. If it is not, `auto` takes what the probe
/// engine sees rather than ordinary breakpoints.
Result<RecordingResult> capture_with_gdb(const OpenTarget& target, const Plan& plan,
                                         const RecordingOptions& recording, bool probe_instead,
                                         const RecordLimits& limits, double passes,
                                         const CommonOptions& common) {
  const auto gdb = find_gdb();
  const auto proven = gdb ? prove_gdb(*gdb) : tl::make_unexpected(gdb.error());
  if (proven) return trace_with_gdb(target, plan, recording, true, common);
  if (proven.error().code != ErrorCode::kernel_feature) return tl::make_unexpected(proven.error());
  if (probe_instead) {
    say(common,
        fmt::format("the probe engine alone, which does not watch all sites: {}", to_line(proven.error())));
    return trace_with_probe(target, plan, recording, limits, passes, common);
  }
  say(common, fmt::format("no stubs, ordinary breakpoints instead: {}", to_line(proven.error())));
  return trace_with_gdb(target, plan, recording, false, common);
}

/// Calls may come through sites that have no stub: Go's system calls of any kind come through one. An
/// ordinary breakpoint there sees them, at a stop for each, which the process may not be able to afford.
bool probe_is_enough(const Plan& plan, double passes, const RecordingOptions& recording,
                     const CommonOptions& common) {
  if (!probe_sees_everything(plan)) return false;
  if (passes == 0) return true;
  constexpr double seconds_per_stop =
      100e-6;  // false hits of a conditional breakpoint, GDB 13.1: 80 to 130 us
  const double slowdown = passes * seconds_per_stop;
  if (slowdown <= recording.max_slowdown) return false;
  say(common,
      fmt::format(
          "probe, which leaves out instructions that are passed {:.0f} times a second, with calls of any "
          "kind: to stop at each would cost {:.0f} % of a thread's time (--engine gdb --max-slowdown "
          "100 does)",
          passes, slowdown * 100));
  return true;
}

/// `auto` is probe where that misses nothing and stubs can be put in, else gdb.
Result<RecordingResult> capture(const OpenTarget& target, const Plan& plan, const RecordingOptions& recording,
                                const TraceOptions& options, const CommonOptions& common) {
  if (options.no_stubs) return trace_with_gdb(target, plan, recording, false, common);
  const double passes = options.engine == "gdb" ? 0 : count_passes_left_out(target.target, plan);
  if (options.engine == "probe")
    return trace_with_probe(target, plan, recording, options.limits, passes, common);
  bool probe_instead = options.engine == "auto";
  if (options.engine == "auto" && probe_is_enough(plan, passes, recording, common)) {
    auto result = trace_with_probe(target, plan, recording, options.limits, passes, common);
    if (result || result.error().code != ErrorCode::unsupported_target) return result;
    say(common, fmt::format("the gdb engine instead of probe: {}", to_line(result.error())));
    probe_instead = false;
  } else if (options.engine == "auto" && common.verbose) {
    for (const std::string& each : sites_without_stub(plan)) say(common, "no stub at " + each);
  }
  return capture_with_gdb(target, plan, recording, probe_instead, options.limits, passes, common);
}

/// Said right before the attach; the error when it is not to be taken.
std::optional<Error> weigh_attach_risk(const Target& target, bool refuse, const CommonOptions& common) {
  const AttachRisk risk = find_attach_risk(target);
  if (risk.none()) return std::nullopt;
  if (refuse)
    return Error{
        ErrorCode::not_permitted, risk_text(risk),
        "leave out --no-attach-risk if the program goes on after EINTR, or try again in another moment"};
  say(common, risk_text(risk));
  return std::nullopt;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("trace", "-p PID [OPTIONS]", "which code maps the memory of a growing process");
  TraceOptions options;
  add_options(line, options);
  if (const auto stop = line.parse(arguments)) return *stop;
  const CommonOptions& common = line.common();
  if (options.engine != "auto" && options.engine != "gdb" && options.engine != "probe")
    return report_usage("trace",
                        fmt::format("there is no engine '{}', only auto, probe and gdb", options.engine));
  const auto limits = capture_options(line);
  if (!limits) return report_usage("trace", limits.error());
  if (const auto read = read_limits(options); !read) return report_usage("trace", read.error());
  const auto shape = answer_shape(options.format, {AnswerShape::text, AnswerShape::json});
  if (!shape) return report_usage("trace", shape.error().happened);
  const auto pid = parse_pid(options.pid);
  if (!pid) return report_usage("trace", pid.error());
  auto signatures = signatures_of(line);
  if (!signatures) return report_error(signatures.error());

  const auto interrupts = interrupts_as_fd();
  if (!interrupts) return report_error(interrupts.error());
  auto target = open_target(*pid);
  if (!target) return report_error(target.error());
  if (const auto foreign = find_foreign_stubs(target->target)) return report_error(*foreign);
  // Before anything is done to the process: a watch of another one would be found out only at the end.
  MatchOptions match;
  match.known = std::move(*signatures);
  if (line.has("regions")) {
    auto history = load_history(options.regions);
    if (!history) return report_error(history.error());
    if (auto same = check_history(*history, target->target.identity()); !same)
      return report_error(same.error());
    match.history = std::move(*history);
  }
  const auto plan = plan_for(*target, options.plan_file, PlanOptions{limits->syscalls, {}});
  if (!plan) return report_error(plan.error());

  if (const auto shared = shared_memory_obstacle(target->target)) return report_error(*shared);
  warn_of_seccomp(*target, common);
  if (const auto refused = weigh_attach_risk(target->target, options.no_attach_risk, common))
    return report_error(*refused);
  RecordingOptions recording;
  recording.seconds = limits->seconds;
  recording.max_hits = limits->max_hits;
  recording.max_slowdown = limits->max_slowdown;
  recording.minimum_length = options.limits.minimum_length;
  recording.path = line.has("output") ? options.output : default_trace_name(target->target.identity());
  recording.overwrite = common.force;
  recording.interrupt_fd = interrupts->get();
  const auto result = capture(*target, *plan, recording, options, common);
  if (!result) return report_error(result.error());
  print_ending(common, recording.path, *result);
  const ExitStatus answered =
      recording.path == "-" ? ExitStatus::done : print_answer(recording.path, match, *shape, common);
  return recording_status(*result).value_or(answered);
}

}  // namespace

const CommandInfo trace_command{
    "trace", "capture the calls that map memory, and name the code behind the growth", run};

}  // namespace whomap::cli
