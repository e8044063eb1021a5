// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/known_causes.h"
#include "cli/saved_regions.h"
#include "core/match/match.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("match", "TRACE [REGIONS] [OPTIONS]",
                   "which stacks explain the growth, from a trace file");
  line.positional("trace-file", "what whomap trace wrote");
  line.positional("regions-file",
                  "saved /proc/PID/maps, smaps, or the output of pmap -X: in place of the trace's last "
                  "snapshot; several in "
                  "one file are before, ..., after");
  line.options().add_options()("format", po::value<std::string>()->value_name("FORM")->default_value("text"),
                               "text or json")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"), "where the answer goes");
  add_signatures_option(line);
  if (const auto stop = line.parse(arguments)) return *stop;
  if (!line.has("trace-file")) return report_usage("match", "no trace file was given");
  const auto shape = answer_shape(line.get<std::string>("format"), {AnswerShape::text, AnswerShape::json});
  if (!shape) return report_usage("match", shape.error().happened);

  MatchOptions options;
  auto signatures = signatures_of(line);
  if (!signatures) return report_error(signatures.error());
  options.signatures = std::move(*signatures);
  if (line.has("regions-file")) {
    options.regions_name = line.get<std::string>("regions-file");
    auto regions = load_regions(options.regions_name);
    if (!regions) return report_error(regions.error());
    options.regions = std::move(*regions);
  }
  const auto answer = match_trace(line.get<std::string>("trace-file"), options);
  if (!answer) return report_error(answer.error());
  const auto wrote = write_answer(*answer, *shape, line.get<std::string>("output"), line.common());
  if (!wrote) return report_error(wrote.error());
  return answer_status(*answer);
}

}  // namespace

const CommandInfo match_command{"match", "which stacks explain the growth, from a trace file", run};

}  // namespace whomap::cli
