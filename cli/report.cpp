// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"
#include "cli/command.h"
#include "core/match/match.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("report", "TRACE [OPTIONS]", "a trace in other shapes");
  line.positional("trace-file", "what whomap trace wrote");
  line.options().add_options()("format", po::value<std::string>()->value_name("FORM")->default_value("text"),
                               "text, json, or folded (for flame graphs)")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"), "where it goes");
  if (const auto stop = line.parse(arguments)) return *stop;
  if (!line.has("trace-file")) return report_usage("report", "no trace file was given");
  const auto shape = answer_shape(line.get<std::string>("format"),
                                  {AnswerShape::text, AnswerShape::json, AnswerShape::folded});
  if (!shape) return report_usage("report", shape.error().happened);

  const auto answer = match_trace(line.get<std::string>("trace-file"));
  if (!answer) return report_error(answer.error());
  const auto wrote = write_answer(*answer, *shape, line.get<std::string>("output"), line.common());
  if (!wrote) return report_error(wrote.error());
  return ExitStatus::done;
}

}  // namespace

const CommandInfo report_command{"report", "a trace in other shapes: text, JSON, folded stacks", run};

}  // namespace whomap::cli
