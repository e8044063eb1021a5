// SPDX-License-Identifier: Apache-2.0
// whomap doctor: can this machine and this process be traced, and if not, what to do?
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/doctor_checks.h"
#include "core/base/json_fields.h"
#include "core/report/layout.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

struct Examination {
  std::optional<pid_t> pid;
  std::vector<Finding> machine, process;

  /// The first problem in the order in which a trace meets them: the process, then the machine.
  [[nodiscard]] const Finding* problem() const {
    for (const auto* findings : {&process, &machine})
      for (const Finding& each : *findings)
        if (each.health == Health::problem) return &each;
    return nullptr;
  }
  [[nodiscard]] ExitStatus status() const {
    return problem() != nullptr ? problem()->status : ExitStatus::done;
  }
};

std::string_view word(Health health) {
  switch (health) {
    case Health::good: return "ok";
    case Health::warning: return "warning";
    case Health::problem: return "problem";
  }
  return "problem";
}

std::string painted(Health health, const Paint& paint) {
  const std::string text = fit(word(health), 9);
  switch (health) {
    case Health::good: return paint.green(text);
    case Health::warning: return paint.yellow(text);
    case Health::problem: return paint.red(text);
  }
  return text;
}

std::string lines(const std::vector<Finding>& findings, const Paint& paint, std::size_t width) {
  constexpr std::size_t indent = 23;
  std::string text;
  for (const Finding& each : findings) {
    const std::string said = each.remedy.empty() ? each.text : fmt::format("{}; {}", each.text, each.remedy);
    text += "  " + painted(each.health, paint) + fit(each.check, 12) +
            wrap(printable(said), width, indent, indent);
  }
  return text;
}

std::string to_text(const Examination& found, bool color, std::size_t width) {
  const Paint paint(color);
  std::string text = paint.bold("machine") + "\n" + lines(found.machine, paint, width);
  if (found.pid)
    text += paint.bold(fmt::format("process {}", *found.pid)) + "\n" + lines(found.process, paint, width);
  const std::string what = found.pid ? fmt::format("process {} ", *found.pid) : "processes ";
  if (const Finding* problem = found.problem())
    return text + fmt::format("whomap doctor: {}cannot be traced here: {}\n", what, printable(problem->text));
  return text + fmt::format("whomap doctor: {}can be traced here{}\n", what,
                            found.pid ? fmt::format("; next: whomap trace -p {}", *found.pid) : "");
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const Finding& each : findings) {
    nlohmann::ordered_json remedy = nullptr;
    if (!each.remedy.empty()) remedy = json_text(each.remedy);
    json.push_back({{"check", each.check},
                    {"state", word(each.health)},
                    {"text", json_text(each.text)},
                    {"remedy", remedy}});
  }
  return json;
}

std::string to_json_text(const Examination& found) {
  nlohmann::ordered_json json{{"format", "whomap-doctor"},
                              {"version", 1},
                              {"can_trace", found.problem() == nullptr},
                              {"exit_status", static_cast<int>(found.status())},
                              {"machine", to_json(found.machine)}};
  json["process"] = nullptr;
  if (found.pid) json["process"] = {{"pid", *found.pid}, {"findings", to_json(found.process)}};
  return json.dump(2) + "\n";
}

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("doctor", "[-p PID] [OPTIONS]",
                   "can this machine and this process be traced, and if not, what to do");
  line.options().add_options()("pid,p", po::value<std::string>()->value_name("PID"),
                               "a process to look at too; it is neither stopped nor attached to")(
      "format", po::value<std::string>()->value_name("NAME")->default_value("text"), "text or json")(
      "output,o", po::value<std::string>()->value_name("FILE")->default_value("-"),
      "where the result goes; - is standard output");
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto shape = answer_shape(line.get<std::string>("format"), {AnswerShape::text, AnswerShape::json});
  if (!shape) return report_usage("doctor", shape.error().happened);
  Examination found;
  bool gdb_needed = true;
  if (line.has("pid")) {
    const auto pid = parse_pid(line.get<std::string>("pid"));
    if (!pid) return report_usage("doctor", pid.error());
    found.pid = *pid;
    found.process = examine_process(*pid, gdb_needed);
  }
  found.machine = examine_machine(gdb_needed);
  const std::string& output = line.get<std::string>("output");
  const bool color = output == "-" && line.common().use_color(STDOUT_FILENO);
  const auto wrote =
      write_result(output, line.common().force,
                   *shape == AnswerShape::json
                       ? to_json_text(found)
                       : to_text(found, color, static_cast<std::size_t>(terminal_width(STDOUT_FILENO))));
  return wrote ? found.status() : report_error(wrote.error());
}

}  // namespace

const CommandInfo doctor_command{"doctor",
                                 "can this machine and this process be traced, and if not, what to do", run};

}  // namespace whomap::cli
