// SPDX-License-Identifier: Apache-2.0
// whomap collect: started inside GDB, by a generated script or by hand; receives its captures and writes the
// trace file.
#include <unistd.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/gdb_captures.h"
#include "cli/gdb_proof.h"
#include "cli/live.h"
#include "cli/stub_outcome.h"
#include "core/base/files.h"
#include "core/base/json_fields.h"
#include "core/capture/code_guard.h"
#include "core/stub/breakpoint_state.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

struct CollectOptions {
  int channel_fd = -1;
  int ring_fd = -1;
  std::string output, gdb;
  bool by_hand = false, stubs = false;
};

void add_options(CommandLine& line, CollectOptions& options) {
  line.options().add_options()("channel-fd", po::value(&options.channel_fd)->value_name("FD")->required(),
                               "socket to the tracer")(
      "output,o", po::value(&options.output)->value_name("FILE")->required(), "the trace file")(
      "gdb", po::value(&options.gdb)->value_name("FILE"), "the GDB that it runs in")(
      "stubs", po::bool_switch(&options.stubs), "put stubs in before GDB is told to attach")(
      "by-hand", po::bool_switch(&options.by_hand),
      "the user of an interactive GDB says when it ends; GDB puts stubs in itself")(
      "ring-fd", po::value(&options.ring_fd)->value_name("FD"),
      "by hand: of these stubs; the plan has a member \"ring\" with what else is to be known of it");
  add_capture_options(line);
}

Result<Target> target_of(const Plan& plan) {
  auto target = Target::open(plan.target.pid);
  if (target && target->identity().start_time != plan.target.start_time)
    return fail(ErrorCode::process_replaced,
                fmt::format("process {} is not the one the script was made for", plan.target.pid),
                "write a new script");
  return target;
}

/// How the sites are watched, before the tracer is told to begin.
struct Watch {
  std::optional<SupervisedStubs> stubs;
  std::optional<BreakpointState> breakpoints;
  std::unique_ptr<RingSource> ring;
};

Result<std::optional<SupervisedStubs>> stubs_of_script(const CollectOptions& options, const Plan& plan,
                                                       const CommonOptions& common) {
  const auto proven = prove_gdb(options.gdb);
  if (proven) return put_stubs_in(plan, common);
  say(common, fmt::format("no stubs, ordinary breakpoints instead: {}", to_line(proven.error())));
  return std::optional<SupervisedStubs>{};
}

/// By hand the stubs are in already, and are not ours to take out.
Result<std::unique_ptr<RingSource>> ring_of_debugger(const Target& target, const Plan& plan, int fd,
                                                     const nlohmann::json& facts) {
  const auto state = load_state(target.identity());
  if (!state) return tl::make_unexpected(state.error());
  if (!*state) return fail(ErrorCode::input_damaged, "the state of the stubs is not written down");
  RingFacts ring{UniqueFd(fd), json_bool(facts, "tsc_forbidden").value_or(false), {}};
  if (const auto* const threads = json_member(facts, "threads"); threads != nullptr)
    for (const auto& each : *threads)
      ring.threads.push_back({each.at(0).get<pid_t>(), each.at(1).get<std::uint64_t>()});
  return open_ring(target, plan, **state, std::move(ring), {});
}

Result<Watch> begin(const CollectOptions& options, const Target& target, const Plan& plan,
                    const nlohmann::json& input, const CommonOptions& common) {
  Watch watch;
  if (options.stubs) {
    auto stubs = stubs_of_script(options, plan, common);
    if (!stubs) return tl::make_unexpected(stubs.error());
    if (*stubs) watch.stubs.emplace(std::move(**stubs));
  }
  Result<std::unique_ptr<RingSource>> ring = std::unique_ptr<RingSource>{};
  if (watch.stubs) ring = open_ring(target, plan, *watch.stubs, {});
  if (options.ring_fd >= 0)
    ring = ring_of_debugger(target, plan, options.ring_fd, input.value("ring", nlohmann::json()));
  if (!ring) return tl::make_unexpected(ring.error());
  watch.ring = std::move(*ring);
  if (watch.ring != nullptr) return watch;
  auto written = BreakpointState::write(target, plan);
  if (!written) return tl::make_unexpected(written.error());
  watch.breakpoints.emplace(std::move(*written));
  return watch;
}

ExitStatus collect(const CollectOptions& options, const CaptureOptions& limits, const CommonOptions& common) {
  UniqueFd channel(options.channel_fd);
  const auto interrupts = interrupts_as_fd();
  if (!interrupts) return report_error(interrupts.error());
  const auto text = read_file("/proc/self/fd/0");
  if (!text) return report_error(text.error());
  const auto json = parse_json(*text);
  const auto plan = plan_from_json(json);
  if (!plan) return report_error(plan.error());
  const auto target = target_of(*plan);
  if (!target) return report_error(target.error());
  auto watch = begin(options, *target, *plan, json, common);
  if (!watch) return report_error(watch.error());
  const Plan rest = watch->stubs ? without_stubs(*plan, watch->stubs->installed().state) : *plan;
  const auto guard = CodeGuard::record(*target, rest);
  if (!guard) return report_error(guard.error());
  const auto captures = GdbCaptures::open(std::move(channel), ::getppid(), std::move(watch->ring));
  if (!captures) return report_error(captures.error());

  RecordingOptions recording;
  recording.seconds = limits.seconds;
  recording.max_hits = limits.max_hits;
  recording.max_slowdown = limits.max_slowdown;
  recording.path = options.output;
  recording.overwrite = common.force;
  recording.interrupt_fd = interrupts->get();
  if (options.by_hand) recording.engine_ended = "by-hand";
  recording.own_memory = [&target] { return own_memory(target->identity()); };
  const auto result = record(*target, *plan, (*captures)->source(), recording,
                             progress_printer(common, limits.seconds), [&](bool engine_finished) {
                               const auto outcome = guard->restore(*target, !engine_finished);
                               if (watch->breakpoints && outcome.failed.empty()) watch->breakpoints->forget();
                               return watch->stubs ? remove_and_report(*watch->stubs, common) : StopTimes{};
                             });
  if (!result) return report_error(result.error());
  if (!result->armed) {
    ::unlink(options.output.c_str());
    return report_error({ErrorCode::gdb_failed, "GDB ended before it traced", "see what GDB printed"});
  }
  print_ending(common, options.output, *result);
  return recording_status(*result).value_or(ExitStatus::done);
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("collect", "--channel-fd FD ...",
                   "receive the captures of a GDB script (its plan on standard input)");
  CollectOptions options;
  add_options(line, options);
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto limits = capture_options(line);
  if (!limits) return report_usage("collect", limits.error());
  return collect(options, *limits, line.common());
}

}  // namespace

const CommandInfo collect_command{"collect", "receives the captures of a GDB script", run, true};

}  // namespace whomap::cli
