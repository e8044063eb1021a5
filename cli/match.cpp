// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/known_causes.h"
#include "cli/region_history.h"
#include "cli/saved_regions.h"
#include "core/match/match.h"
#include "core/trace/input_kind.h"
#include "core/trace/line_source.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

/// The watch file stands for a longer history; everything else for single snapshots.
Result<bool> is_watch_file(const std::string& path) {
  auto source = LineSource::open(path);
  if (!source) return tl::make_unexpected(source.error());
  const auto start = source->peek();
  if (!start) return tl::make_unexpected(start.error());
  return input_kind(*start) == InputKind::whomap_watch;
}

Result<void> take_regions(const std::string& path, MatchOptions& options) {
  const auto is_watch = is_watch_file(path);
  if (!is_watch) return tl::make_unexpected(is_watch.error());
  if (*is_watch) {
    auto history = load_history(path);
    if (!history) return tl::make_unexpected(history.error());
    options.history = std::move(*history);
    return {};
  }
  auto regions = load_regions(path);
  if (!regions) return tl::make_unexpected(regions.error());
  options.regions_name = path;
  options.regions = std::move(*regions);
  return {};
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("match", "TRACE [REGIONS] [OPTIONS]",
                   "which stacks explain the growth, from a trace file");
  line.positional("trace-file", "what whomap trace wrote");
  line.positional("regions-file",
                  "a watch file (whomap watch -o), saved /proc/PID/maps, smaps, or the output of pmap -X: in "
                  "place of the trace's last "
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

  const std::string regions = line.has("regions-file") ? line.get<std::string>("regions-file") : "";
  if (const auto same =
          output_is_input(line.get<std::string>("output"), {line.get<std::string>("trace-file"), regions}))
    return report_error(*same);

  MatchOptions options;
  auto signatures = signatures_of(line);
  if (!signatures) return report_error(signatures.error());
  options.known = std::move(*signatures);
  if (!regions.empty()) {
    auto loaded = take_regions(regions, options);
    if (!loaded) return report_error(loaded.error());
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
