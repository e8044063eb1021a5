// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"
#include "core/base/files.h"
#include "core/match/match.h"
#include "core/trace/input_kind.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

Result<Snapshot> load_regions(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  const InputKind kind = input_kind(std::string_view(*text).substr(0, 65536));
  if (kind != InputKind::maps && kind != InputKind::smaps)
    return fail(ErrorCode::input_kind,
                fmt::format("{} does not hold regions, it looks like {}", path, describe(kind)),
                "give a saved copy of /proc/PID/maps or /proc/PID/smaps");
  return snapshot_from_text(*text);
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("match", "TRACE [REGIONS] [OPTIONS]",
                   "which stacks explain the growth, from a trace file");
  line.positional("trace-file", "what whomap trace wrote");
  line.positional("regions-file",
                  "saved /proc/PID/maps or smaps, newer than the trace, in place of its last snapshot");
  line.options().add_options()("format", po::value<std::string>()->value_name("FORM")->default_value("text"),
                               "text or json")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"), "where the answer goes");
  if (const auto stop = line.parse(arguments)) return *stop;
  if (!line.has("trace-file")) return report_usage("match", "no trace file was given");
  const auto shape = answer_shape(line.get<std::string>("format"), {AnswerShape::text, AnswerShape::json});
  if (!shape) return report_usage("match", shape.error().happened);

  MatchOptions options;
  if (line.has("regions-file")) {
    options.after_name = line.get<std::string>("regions-file");
    auto regions = load_regions(options.after_name);
    if (!regions) return report_error(regions.error());
    options.after = std::move(*regions);
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
