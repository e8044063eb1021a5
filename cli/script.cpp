// SPDX-License-Identifier: Apache-2.0
// whomap script: the same trace as a command file for `gdb -x`.
#include <filesystem>

#include <fmt/format.h>

#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/live.h"
#include "core/plan/plain_script.h"
#include "core/plan/script.h"
#include "gdb_plugin/gdb_process.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("script", "-p PID -o FILE [OPTIONS]",
                   "write a trace as a script for gdb -nx -batch -x FILE");
  std::string pid_text, output, trace;
  bool plain = false;
  line.options().add_options()("pid,p", po::value(&pid_text)->value_name("PID")->required(),
                               "the process that grows")(
      "output,o", po::value(&output)->value_name("FILE")->required(), "the script; - is standard output")(
      "trace", po::value(&trace)->value_name("FILE"), "the trace file that it will write")(
      "plain", po::bool_switch(&plain),
      "a readable script that needs no Python in GDB; it prints a log for whomap import");
  add_capture_options(line);
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto limits = capture_options(line);
  if (!limits) return report_usage("script", limits.error());
  const auto pid = parse_pid(pid_text);
  if (!pid) return report_usage("script", pid.error());
  if (plain && line.has("trace"))
    return report_usage("script",
                        "--plain writes no trace file, it prints a log: give one of --plain and --trace");
  auto target = open_target(*pid);
  if (!target) return report_error(target.error());
  const auto plan = plan_for(*target, {}, PlanOptions{limits->syscalls, {}});
  if (!plan) return report_error(plan.error());

  if (plain) {
    const std::string text = plain_gdb_script(*plan, {limits->seconds, limits->max_hits});
    if (auto wrote = write_result(output, line.common().force, text); !wrote)
      return report_error(wrote.error());
    if (!line.common().quiet && output != "-")
      std::fputs(
          fmt::format(
              "whomap: wrote {}; next: gdb -nx -batch -x {} > gdb.log, then whomap import --from gdb-log "
              "gdb.log -o TRACE\n",
              printable(output), printable(output))
              .c_str(),
          stderr);
    return ExitStatus::done;
  }
  const auto plugin = find_plugin_folder();
  if (!plugin) return report_error(plugin.error());
  std::error_code problem;
  if (trace.empty()) trace = default_trace_name(target->target.identity());
  ScriptOptions options;
  options.plugin_folder = *plugin;
  options.collector = {std::filesystem::read_symlink("/proc/self/exe", problem).string(),
                       "collect",
                       "--stubs",
                       "--duration",
                       fmt::format("{}", limits->seconds),
                       "--max-slowdown",
                       fmt::format("{}", limits->max_slowdown * 100),
                       "--output",
                       std::filesystem::absolute(trace, problem).string()};
  if (limits->max_hits)
    options.collector.insert(options.collector.end(), {"--max-hits", fmt::format("{}", *limits->max_hits)});
  if (line.common().force) options.collector.emplace_back("--force");
  if (auto wrote = write_result(output, line.common().force, gdb_script(*plan, options)); !wrote)
    return report_error(wrote.error());
  if (!line.common().quiet && output != "-")
    std::fputs(fmt::format("whomap: wrote {}; next: gdb -nx -batch -x {}, then whomap match {}\n",
                           printable(output), printable(output), printable(trace))
                   .c_str(),
               stderr);
  return ExitStatus::done;
}

}  // namespace

const CommandInfo script_command{"script", "the same trace as a script for gdb -x", run};

}  // namespace whomap::cli
