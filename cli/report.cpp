// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/known_causes.h"
#include "core/match/match.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("report", "TRACE [OPTIONS]", "a trace in other shapes");
  line.positional("trace-file", "what whomap trace wrote");
  line.options().add_options()("format", po::value<std::string>()->value_name("FORM")->default_value("text"),
                               "text, json, folded (flame graphs), speedscope, pprof (gzip) or html")(
      "weight", po::value<std::string>()->value_name("WHAT"),
      "what a stack weighs in the last four: growth, or live; default: growth where it is known")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"), "where it goes");
  add_signatures_option(line);
  if (const auto stop = line.parse(arguments)) return *stop;
  if (!line.has("trace-file")) return report_usage("report", "no trace file was given");
  const auto shape = answer_shape(line.get<std::string>("format"),
                                  {AnswerShape::text, AnswerShape::json, AnswerShape::folded,
                                   AnswerShape::speedscope, AnswerShape::pprof, AnswerShape::html});
  if (!shape) return report_usage("report", shape.error().happened);
  const auto weight = weight_option(line.has("weight") ? line.get<std::string>("weight") : "");
  if (!weight) return report_usage("report", weight.error().happened);
  const std::string& output = line.get<std::string>("output");
  if (*shape == AnswerShape::pprof && output == "-" && ::isatty(STDOUT_FILENO) == 1)
    return report_usage("report", "pprof is a binary format: name a file with -o");

  const std::string& trace = line.get<std::string>("trace-file");
  if (const auto same = output_is_input(output, {trace})) return report_error(*same);

  MatchOptions options;
  auto signatures = signatures_of(line);
  if (!signatures) return report_error(signatures.error());
  options.known = std::move(*signatures);
  const auto answer = match_trace(trace, options);
  if (!answer) return report_error(answer.error());
  const auto wrote = write_answer(*answer, *shape, output, line.common(), *weight);
  if (!wrote) return report_error(wrote.error());
  return ExitStatus::done;
}

}  // namespace

const CommandInfo report_command{"report", "a trace in other shapes: JSON, folded, speedscope, pprof, HTML",
                                 run};

}  // namespace whomap::cli
