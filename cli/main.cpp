// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command.h"
#include "core/base/version.h"

namespace whomap::cli {
namespace {

const std::array commands{&trace_command,  &watch_command,     &plan_command,    &script_command,
                          &match_command,  &report_command,    &import_command,  &verify_command,
                          &doctor_command, &repair_command,    &collect_command, &supervise_command,
                          &prove_command,  &throw_away_command};

std::string help() {
  std::string text = fmt::format(
      "whomap {}: which code maps the memory of a growing process?\n\n"
      "Usage: whomap COMMAND [OPTIONS]\n"
      "       whomap -p PID             everything in one go (= whomap trace -p PID)\n\nCommands:\n",
      WHOMAP_VERSION);
  for (const CommandInfo* command : commands)
    if (!command->hidden) text += fmt::format("  {:<8}  {}\n", command->name, command->summary);
  return text +
         "\n'whomap COMMAND --help' lists the options of a command.\n\n"
         "Exit status:\n"
         "    0  done: growth was seen (watch), explained, or shown to be none of the code's doing\n"
         "    1  done, and the answer is negative: nothing grew, nothing matched, no site was hit\n"
         "    2  wrong usage\n"
         "    3  no such process, it ended, exec'd or was replaced, or it is stopped, a zombie or already "
         "traced\n"
         "    4  not permitted, or an attach would be noticed and --no-attach-risk was given\n"
         "    5  something needed is missing here (GDB, its Python, a kernel feature)\n"
         "    6  input file damaged or of the wrong kind\n"
         "    7  inconclusive, or the exercise failed\n"
         "    8  output could not be written, or exists and --force was not given\n"
         "  130  interrupted; what was captured is kept and reported\n";
}

ExitStatus run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    return report_error({ErrorCode::usage, "no command was given", "see whomap --help"});
  }
  const std::string first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    return print_text(help());
  }
  if (first == "--version") {
    return print_text(fmt::format("whomap {}\n", WHOMAP_VERSION));
  }
  if (first.starts_with("-")) return trace_command.run(arguments);
  for (const CommandInfo* command : commands) {
    if (command->name != first) continue;
    arguments.erase(arguments.begin());
    return command->run(arguments);
  }
  return report_error({ErrorCode::usage, fmt::format("'{}' is not a command", first), "see whomap --help"});
}

}  // namespace
}  // namespace whomap::cli

/// A closed standard descriptor would be given to the next file that is opened, and our text written into it.
void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);  // takes the lowest free number: fd
}

int main(int count, char** arguments) {
  using namespace whomap;
  hold_standard_descriptors();
  ::signal(SIGXFSZ,
           SIG_IGN);  // a file that may not grow is a failed write, not the end of whoever holds a target
  try {
    return static_cast<int>(cli::run({arguments + 1, arguments + count}));
  } catch (const std::exception& error) {
    // A defect of ours, or memory ran out; destructors have let the target go.
    return static_cast<int>(cli::report_error(
        {ErrorCode::output_unwritable, fmt::format("internal error: {}", error.what()), "please report it"}));
  }
}
