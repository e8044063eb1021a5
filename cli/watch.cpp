// SPDX-License-Identifier: Apache-2.0
// whomap watch: which regions grow, and what they are. Nothing of the target is stopped or changed.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/watch_session.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

constexpr double shortest_interval = 0.1;

Result<WatchOptions> watch_options(const CommandLine& line) {
  WatchOptions options;
  const auto interval = parse_seconds(line.get<std::string>("interval"));
  if (!interval) return tl::make_unexpected(interval.error());
  if (*interval < shortest_interval)
    return fail(ErrorCode::usage, fmt::format("--interval is {} s", *interval),
                fmt::format("it takes {} s or more", shortest_interval));
  options.interval_seconds = *interval;
  if (line.has("duration")) {
    const auto seconds = parse_seconds(line.get<std::string>("duration"));
    if (!seconds) return tl::make_unexpected(seconds.error());
    options.seconds = *seconds;
  }
  if (line.has("until-growth")) {
    const auto bytes = parse_bytes(line.get<std::string>("until-growth"));
    if (!bytes) return tl::make_unexpected(bytes.error());
    if (*bytes == 0) return fail(ErrorCode::usage, "--until-growth is 0", "it takes a size above 0");
    options.until_growth = *bytes;
  }
  const std::string& format = line.get<std::string>("format");
  if (format != "table" && format != "json")
    return fail(ErrorCode::usage, fmt::format("--format is '{}', and must be table or json", format));
  options.json = format == "json";
  if (line.has("output")) options.output = line.get<std::string>("output");
  return options;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("watch", "-p PID [OPTIONS]",
                   "which regions of a process grow, and what they are; it is not stopped");
  line.options().add_options()("pid,p", po::value<std::string>()->value_name("PID")->required(),
                               "the process to watch")(
      "interval,i", po::value<std::string>()->value_name("SEC")->default_value("1"),
      "time between readings; smaps is read less often where it is slow")(
      "duration,d", po::value<std::string>()->value_name("SEC"), "how long (default: until q or Ctrl-C)")(
      "until-growth", po::value<std::string>()->value_name("BYTES"),
      "end once RssAnon, RssShmem and swap together have grown by so much (64K, 100M, 2G)")(
      "output,o", po::value<std::string>()->value_name("FILE"),
      "write a watch file, for match and trace --regions; - is standard output")(
      "format", po::value<std::string>()->value_name("FORMAT")->default_value("table"),
      "table, or json: the watch file's lines on standard output");
  if (auto stop = line.parse(arguments)) return *stop;
  const auto options = watch_options(line);
  if (!options) return report_usage("watch", options.error());
  const auto pid = parse_pid(line.get<std::string>("pid"));
  if (!pid) return report_usage("watch", pid.error());
  const auto target = Target::open(*pid);
  if (!target) return report_error(target.error());
  return watch(*target, *options, line.common());
}

}  // namespace

const CommandInfo watch_command{"watch", "which regions of a process grow, and what they are", run};

}  // namespace whomap::cli
