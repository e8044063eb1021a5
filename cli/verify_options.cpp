// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/verify/pattern.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

/// As typed; checked by check().
struct Typed {
  std::string pid, exercise, control, ready, max_delta = "100M", max_rate = "10M", format = "text";
  std::vector<std::string> gone, present;
  std::string count = "200", per_run = "1", samples = "3";
  std::string interval = "30", exercise_timeout = "60", ready_timeout = "60";
};

void add_options(CommandLine& line, Typed& typed, VerifyOptions& options) {
  line.options().add_options()("pid,p", po::value(&typed.pid)->value_name("PID"),
                               "the process with the fix; or start one: -- CMD...")(
      "exercise", po::value(&typed.exercise)->value_name("'CMD'"),
      "one operation, for /bin/sh -c; it finds the process in $WHOMAP_PID, and \"subject\" or \"control\" in "
      "$WHOMAP_VARIANT")("count", po::value(&typed.count)->value_name("N")->default_value(typed.count),
                         "runs of the exercise, spread over the whole time")(
      "operations-per-run", po::value(&typed.per_run)->value_name("N")->default_value(typed.per_run),
      "where one exercise performs many")(
      "exercise-timeout", po::value(&typed.exercise_timeout)->value_name("SEC")->default_value("60"),
      "after that, one run has failed")(
      "samples", po::value(&typed.samples)->value_name("N")->default_value(typed.samples),
      "points, 3 or more")("interval", po::value(&typed.interval)->value_name("SEC")->default_value("30"),
                           "between two points, at least")(
      "max-delta", po::value(&typed.max_delta)->value_name("BYTES")->default_value(typed.max_delta),
      "growth allowed from the middle to the last point")(
      "max-rate", po::value(&typed.max_rate)->value_name("BYTES")->default_value(typed.max_rate),
      "growth per minute that must be excluded")("tree", po::bool_switch(&options.tree),
                                                 "sum over the process and all its descendants")(
      "ready", po::value(&typed.ready)->value_name("'CMD'"),
      "wait until this succeeds before the first point of a started program")(
      "ready-timeout", po::value(&typed.ready_timeout)->value_name("SEC")->default_value("60"), "how long")(
      "control", po::value(&typed.control)->value_name("'CMD'"),
      "start the unfixed variant too: it must fail the same test")(
      "save", po::value(&options.save)->value_name("FILE"), "keep this run for a later --baseline")(
      "baseline", po::value(&options.baseline)->value_name("FILE"),
      "a saved run of the unfixed variant: it must fail the same test")(
      "gone", po::value(&typed.gone)->value_name("REGEX")->composing(),
      "also trace: no live growth from stacks with such a function or module")(
      "present", po::value(&typed.present)->value_name("REGEX")->composing(),
      "also trace: stacks with such a function or module map memory")(
      "format", po::value(&typed.format)->value_name("NAME")->default_value(typed.format), "text or json")(
      "output,o", po::value(&options.output)->value_name("FILE")->default_value("-"),
      "where the result goes; - is standard output");
}

/// Assigns the value or keeps the first error.
template <class To, class From>
void take(std::optional<Error>& wrong, To& to, const Result<From>& from) {
  if (from)
    to = static_cast<To>(*from);
  else if (!wrong)
    wrong = from.error();
}

std::optional<Error> usage(std::string what) {
  return Error{ErrorCode::usage, std::move(what), {}, 0};
}

std::optional<Error> check(const CommandLine& line, const Typed& typed, VerifyOptions& options) {
  std::optional<Error> wrong;
  SessionOptions& session = options.session;
  if (line.has("pid")) {
    pid_t pid = 0;
    take(wrong, pid, parse_pid(typed.pid));
    options.pid = pid;
  }
  constexpr std::uint64_t most = 1'000'000;
  constexpr double a_day = 86400;
  take(wrong, session.count, count_value("--count", typed.count, 1, most));
  take(wrong, session.operations_per_run, count_value("--operations-per-run", typed.per_run, 1, most));
  take(wrong, session.samples, count_value("--samples", typed.samples, 3, 10'000));
  take(wrong, session.interval_seconds, seconds_value("--interval", typed.interval, 0.1, a_day));
  take(wrong, session.exercise_timeout_seconds,
       seconds_value("--exercise-timeout", typed.exercise_timeout, 0.1, a_day));
  take(wrong, options.ready_timeout_seconds,
       seconds_value("--ready-timeout", typed.ready_timeout, 0.1, a_day));
  take(wrong, options.limits.growth.max_delta, bytes_value("--max-delta", typed.max_delta));
  double per_minute = 0;
  take(wrong, per_minute, bytes_value("--max-rate", typed.max_rate));
  options.limits.growth.max_rate = per_minute / 60;
  for (const auto& [kind, expressions] :
       {std::pair{EffectKind::gone, &typed.gone}, {EffectKind::present, &typed.present}}) {
    for (const std::string& expression : *expressions) {
      auto pattern = NamePattern::compile(expression);
      if (pattern)
        options.effects.push_back({kind, std::move(*pattern)});
      else if (!wrong)
        wrong = pattern.error();
    }
  }
  if (wrong) return wrong;
  if (!options.pid && options.command.empty())
    return usage("no process was given: -p PID, or -- CMD... to start one");
  if (options.pid && !options.command.empty())
    return usage("-p and -- CMD... were both given: one process is measured");
  for (const char* name : {"exercise", "control", "ready"})
    if (line.has(name) && line.get<std::string>(name).find_first_not_of(" \t\n") == std::string::npos)
      return usage(fmt::format("--{} is empty", name));
  if (typed.exercise.empty())
    for (const char* name : {"count", "operations-per-run", "exercise-timeout"})
      if (!line.values()[name].defaulted())
        return usage(fmt::format("--{} says nothing without --exercise", name));
  if (!typed.ready.empty() && options.command.empty() && typed.control.empty())
    return usage("--ready is for a program that verify starts");
  if (typed.format != "text" && typed.format != "json")
    return usage(fmt::format("--format is '{}', and must be text or json", typed.format));
  if (!options.baseline.empty() && !typed.control.empty())
    return usage("--baseline and --control both stand for the unfixed variant: give one");
  if (!options.save.empty() && options.save == options.output)
    return usage("--save and -o name the same file");
  session.exercise = typed.exercise;
  options.control = typed.control;
  options.ready = typed.ready;
  options.json = typed.format == "json";
  return std::nullopt;
}

}  // namespace

std::optional<ExitStatus> parse_verify_options(const std::vector<std::string>& arguments,
                                               VerifyOptions& options) {
  CommandLine line("verify", "(-p PID | -- CMD...) [OPTIONS]",
                   "did the fix work, and would this test have seen it if not?");
  Typed typed;
  add_options(line, typed, options);
  // What comes after "--" is a command line of its own, with options of its own.
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  if (separator != arguments.end()) options.command.assign(separator + 1, arguments.end());
  if (const auto stop = line.parse({arguments.begin(), separator})) return stop;
  options.common = line.common();
  if (separator != arguments.end() && (options.command.empty() || options.command.front().empty()))
    return report_usage("verify", "no command after --");
  if (const auto wrong = check(line, typed, options)) return report_usage("verify", *wrong);
  return std::nullopt;
}

}  // namespace whomap::cli
