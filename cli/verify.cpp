// SPDX-License-Identifier: Apache-2.0
// whomap verify: did the fix work, and would this test have seen it if not?
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/live.h"
#include "cli/verify_commands.h"
#include "cli/verify_options.h"
#include "cli/verify_trace.h"
#include "cli/verify_variant.h"
#include "core/base/files.h"
#include "core/verify/early.h"
#include "core/verify/process_group.h"
#include "core/verify/saved.h"
#include "core/verify/text.h"

namespace whomap::cli {
namespace {

/// Minutes of measuring must not end in a file that cannot be written: what can be known before is checked
/// before.
std::optional<Error> output_obstacle(const std::string& path, bool overwrite) {
  std::error_code ignored;
  if (path.empty() || path == "-") return std::nullopt;
  if (!overwrite &&
      std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found)
    return Error{ErrorCode::output_exists, fmt::format("{} exists already", path),
                 "choose another name, or give --force to replace it", 0};
  const auto folder = std::filesystem::absolute(path, ignored).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return Error{ErrorCode::output_unwritable, fmt::format("cannot create {}", path),
                 "choose a writable place", errno};
  return std::nullopt;
}

bool needs_control(const VerifyOptions& options, const VerifyInput& input) {
  // A subject that fails needs no control: the test can fail, as was just seen.
  return !options.control.empty() &&
         judge(input.subject.run, options.limits).verdict.kind == VerdictClass::fixed;
}

Result<std::optional<VariantResult>> read_baseline(const VerifyOptions& options) {
  if (options.baseline.empty()) return std::nullopt;
  const auto text = read_file(options.baseline);
  if (!text) return tl::make_unexpected(text.error());
  auto baseline = parse_saved_run(*text, options.baseline);
  if (!baseline) return tl::make_unexpected(baseline.error());
  return std::move(*baseline);
}

/// What can be known before it takes minutes is said before.
std::optional<Error> obstacle(const VerifyOptions& options) {
  for (const std::string& path : {options.output, options.save})
    if (auto wrong = output_obstacle(path, options.common.force)) return wrong;
  for (const auto& [option, command] : {std::pair{"--exercise", options.session.exercise},
                                        {"--ready", options.ready},
                                        {"--control", options.control}})
    if (auto wrong = command_obstacle(option, command)) return wrong;
  return options.effects.empty() ? std::nullopt : EffectTrace::obstacle(options.pid);
}

void say_early_doubts(const VerifyOptions& options, const std::optional<VariantResult>& baseline) {
  if (options.common.quiet) return;
  auto doubts = early_doubts(planned_run(options.session, {}, options.tree), options.limits,
                             baseline ? &*baseline : nullptr, options.effects);
  const std::string& exercise = options.session.exercise;
  if (options.pid && !options.control.empty() && !exercise.empty() &&
      exercise.find("WHOMAP_") == std::string::npos)
    doubts.push_back(
        fmt::format("process {} goes on while the control is measured, and the exercise is the same for "
                    "both: let it choose by "
                    "$WHOMAP_VARIANT (or $WHOMAP_PID) which one it talks to",
                    *options.pid));
  for (const std::string& doubt : doubts)
    std::fputs(fmt::format("whomap: warning: {}\n", printable(doubt)).c_str(), stderr);
}

Result<VerifyInput> measure(const VerifyOptions& options, std::optional<VariantResult> baseline) {
  VerifyInput input;
  input.baseline = std::move(baseline);
  auto subject = measure_variant(options, "subject");
  if (!subject) return tl::make_unexpected(subject.error());
  input.subject = std::move(*subject);
  if (needs_control(options, input)) {
    end_strays();  // a daemon that the subject left behind may hold the control's port
    auto control = measure_variant(options, "control");
    if (control)
      input.control = std::move(*control);
    else
      input.control_problem = control.error();  // what the subject did is known, and kept
  } else if (!options.control.empty()) {
    input.subject.run.notes.emplace_back("the control was not run: only a subject that passes needs one");
  }
  return input;
}

/// The first thing that could not be written decides over the verdict.
ExitStatus write_all(const VerifyOptions& options, const VerifyInput& input, const VerifyOutcome& outcome) {
  ExitStatus status = exit_status(outcome.verdict.kind);
  const auto keep = [&](const Result<void>& wrote) {
    if (!wrote) status = report_error(wrote.error());
  };
  const std::string json =
      options.json || !options.save.empty() ? to_json_text(input, outcome, options.limits) : std::string{};
  if (!options.save.empty()) keep(write_result(options.save, options.common.force, json));
  const bool to_stdout = options.output == "-";
  VerifyTextOptions text;
  text.width = static_cast<std::size_t>(terminal_width(STDOUT_FILENO));
  text.color = to_stdout && options.common.use_color(STDOUT_FILENO);
  text.plot = to_stdout && ::isatty(STDOUT_FILENO) == 1;
  keep(write_result(options.output, options.common.force,
                    options.json ? json : to_text(input, outcome, options.limits, text)));
  // The CI line is where a log shows it, also when the result goes elsewhere.
  if ((options.json || !to_stdout) && !options.common.quiet)
    std::fputs(ci_line(outcome.verdict, options.common.use_color(STDERR_FILENO)).c_str(), stderr);
  return status;
}

ExitStatus run(const std::vector<std::string>& arguments) {
  VerifyOptions options;
  if (const auto stop = parse_verify_options(arguments, options)) return *stop;
  if (const auto wrong = obstacle(options)) return report_error(*wrong);
  auto baseline = read_baseline(options);
  if (!baseline) return report_error(baseline.error());
  const auto interrupts = interrupts_as_fd();
  if (!interrupts) return report_error(interrupts.error());
  options.session.interrupt_fd = interrupts->get();
  adopt_orphans();
  say_early_doubts(options, *baseline);
  const auto input = measure(options, std::move(*baseline));
  end_strays();
  if (!input) return report_error(input.error());
  return write_all(options, *input, conclude(*input, options.limits));
}

}  // namespace

const CommandInfo verify_command{
    "verify", "did the fix work? measures a process under load, and the unfixed one beside it", run};

}  // namespace whomap::cli
