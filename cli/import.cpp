// SPDX-License-Identifier: Apache-2.0
// whomap import: the log of another tool as a trace.
#include "core/trace/importers/import.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "core/match/quantity.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

std::string summary_text(const ImportSummary& summary, const ImportOptions& options) {
  std::string text = fmt::format("{} with {} from {} of {}", count_text(summary.events, "call"),
                                 count_text(summary.stacks, "stack"), count_text(summary.lines, "line"),
                                 name_of(options.kind));
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count != 0) text += fmt::format(", {} {}", count_text(count), what);
  };
  add(summary.failed_calls, "failed");
  add(summary.mispaired, "mispaired");
  add(summary.unpaired, "incomplete");
  add(summary.lost, "lost");
  add(summary.other_processes, "of other processes");
  add(summary.unreadable, "lines not understood");
  if (options.output != "-")
    text = fmt::format("wrote {}: {}; next: whomap match {} [REGIONS]", options.output, text, options.output);
  return text;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("import", "--from KIND FILE -o TRACE", "the log of another tool as a trace");
  std::string kind_name, output, pid_text;
  line.positional("log-file", "what the other tool wrote");
  line.options().add_options()("from", po::value(&kind_name)->value_name("KIND")->required(),
                               "gdb-log, bpftrace, perf-script or strace")(
      "output,o", po::value(&output)->value_name("TRACE")->required(),
      "the trace file; - is standard output")(
      "pid", po::value(&pid_text)->value_name("PID"),
      "only this process, where the log has several; else that of the first call");
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto kind = log_kind(kind_name);
  if (!kind) return report_usage("import", kind.error());
  if (!line.has("log-file")) return report_usage("import", "no log file was given");
  ImportOptions options;
  options.kind = *kind;
  options.output = output;
  options.overwrite = line.common().force;
  if (line.has("pid")) {
    const auto pid = parse_pid(pid_text);
    if (!pid) return report_usage("import", pid.error());
    options.pid = *pid;
  }
  const auto summary = import_log(line.get<std::string>("log-file"), options);
  if (!summary) return report_error(summary.error());
  if (!line.common().quiet)
    std::fputs(fmt::format("whomap: {}\n", printable(summary_text(*summary, options))).c_str(), stderr);
  return ExitStatus::done;
}

}  // namespace

const CommandInfo import_command{"import", "the log of GDB, bpftrace, perf script or strace as a trace", run};

}  // namespace whomap::cli
