// SPDX-License-Identifier: Apache-2.0
// whomap script: the same trace as a command file for `gdb -x`.
#include <filesystem>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/live.h"
#include "core/plan/script.h"
#include "gdb_plugin/gdb_process.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("script", "-p PID -o FILE [OPTIONS]", "write a trace as a script for gdb -nx -batch -x FILE");
  std::string pid_text, output, trace, syscalls;
  double seconds = 10;
  std::uint64_t max_hits = 0;
  line.options().add_options()
      ("pid,p", po::value(&pid_text)->value_name("PID")->required(), "the process that grows")
      ("output,o", po::value(&output)->value_name("FILE")->required(), "the script; - is standard output")
      ("duration,d", po::value(&seconds)->value_name("SEC")->default_value(10, "10"), "how long it captures")
      ("max-hits", po::value(&max_hits)->value_name("N"), "end after N captured calls")
      ("syscalls", po::value(&syscalls)->value_name("LIST"), "which calls, default mmap,munmap,mremap,brk")
      ("trace", po::value(&trace)->value_name("FILE"), "the trace file that it will write");
  if (const auto stop = line.parse(arguments)) return *stop;
  if (seconds <= 0 || seconds > 7 * 86400.0 || seconds != seconds)
    return report_usage("script", "-d takes seconds above 0 and up to a week");
  if (line.has("max-hits") && max_hits == 0) return report_usage("script", "--max-hits takes a number above 0");
  const auto pid = parse_pid(pid_text);
  if (!pid) return report_error(pid.error());
  PlanOptions plan_options;
  if (line.has("syscalls")) {
    auto watched = parse_syscalls(syscalls);
    if (!watched) return report_error(watched.error());
    plan_options.watched = std::move(*watched);
  }
  const auto plugin = find_plugin_folder();
  if (!plugin) return report_error(plugin.error());
  auto target = open_target(*pid);
  if (!target) return report_error(target.error());
  const auto plan = plan_for(*target, {}, plan_options);
  if (!plan) return report_error(plan.error());

  std::error_code problem;
  if (trace.empty()) trace = default_trace_name(target->target.identity());
  ScriptOptions options;
  options.plugin_folder = *plugin;
  options.collector = {std::filesystem::read_symlink("/proc/self/exe", problem).string(),
                       "collect", "--duration", fmt::format("{}", seconds),
                       "--output", std::filesystem::absolute(trace, problem).string()};
  if (line.has("max-hits")) options.collector.insert(options.collector.end(), {"--max-hits", fmt::format("{}", max_hits)});
  if (line.common().force) options.collector.emplace_back("--force");
  if (auto wrote = write_result(output, line.common().force, gdb_script(*plan, options)); !wrote)
    return report_error(wrote.error());
  if (!line.common().quiet && output != "-")
    std::fputs(fmt::format("whomap: wrote {}; next: gdb -nx -batch -x {}, then whomap match {}\n", printable(output),
                           printable(output), printable(trace)).c_str(), stderr);
  return ExitStatus::done;
}

}  // namespace

const CommandInfo script_command{"script", "the same trace as a script for gdb -x", run};

}  // namespace whomap::cli
