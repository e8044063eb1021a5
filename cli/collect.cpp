// SPDX-License-Identifier: Apache-2.0
// whomap collect: started by a generated GDB script; receives its captures and writes the trace file.
#include <unistd.h>

#include <fmt/format.h>

#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/live.h"
#include "core/base/files.h"
#include "core/base/json_fields.h"
#include "core/capture/channel.h"
#include "core/capture/code_guard.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("collect", "--channel-fd FD ...",
                   "receive the captures of a GDB script (its plan on standard input)");
  int channel_fd = -1;
  std::string output;
  line.options().add_options()("channel-fd", po::value(&channel_fd)->value_name("FD")->required(),
                               "socket to the tracer")(
      "output,o", po::value(&output)->value_name("FILE")->required(), "the trace file");
  add_capture_options(line);
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto limits = capture_options(line);
  if (!limits) return report_usage("collect", limits.error());
  const auto interrupts = interrupts_as_fd();
  if (!interrupts) return report_error(interrupts.error());
  CollectorChannel channel(UniqueFd(channel_fd), ::getppid());  // GDB has started it
  const auto plan_text = read_file("/proc/self/fd/0");
  if (!plan_text) return report_error(plan_text.error());
  const auto json = parse_json(*plan_text);
  const auto plan = plan_from_json(json);
  if (!plan) return report_error(plan.error());
  auto target = Target::open(plan->target.pid);
  if (!target) return report_error(target.error());
  if (target->identity().start_time != plan->target.start_time)
    return report_error({ErrorCode::process_replaced,
                         fmt::format("process {} is not the one the script was made for", plan->target.pid),
                         "write a new script"});
  const auto guard = CodeGuard::record(*target, *plan);
  if (!guard) return report_error(guard.error());

  RecordingOptions recording;
  recording.seconds = limits->seconds;
  recording.max_hits = limits->max_hits;
  recording.max_slowdown = limits->max_slowdown;
  recording.path = output;
  recording.overwrite = line.common().force;
  recording.interrupt_fd = interrupts->get();
  const auto result = record(*target, *plan, channel, recording,
                             progress_printer(line.common(), limits->seconds), [&](bool engine_finished) {
                               (void)guard->restore(*target, !engine_finished);
                               return StopTimes{};
                             });
  if (!result) return report_error(result.error());
  if (!result->armed) {
    ::unlink(output.c_str());
    return report_error(
        {ErrorCode::gdb_failed, "the GDB script ended before it traced", "see what GDB printed"});
  }
  print_ending(line.common(), output, *result);
  return recording_status(*result).value_or(ExitStatus::done);
}

}  // namespace

const CommandInfo collect_command{"collect", "receives the captures of a GDB script", run, true};

}  // namespace whomap::cli
