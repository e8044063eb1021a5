// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_commands.h"

#include <sys/wait.h>

#include <array>
#include <sstream>

#include <fmt/format.h>

#include "core/verify/process_group.h"

namespace whomap::cli {
namespace {

bool has_only_words(const std::string& command) {
  return command.find_first_of(";&|<>()`$\n#") == std::string::npos;
}

/// The program that a simple command runs, behind assignments and `env`; empty when that takes more of a
/// shell to know.
std::string program_of(const std::string& command) {
  if (!has_only_words(command) || command.find_first_of("'\"\\*?[~{") != std::string::npos) return {};
  std::istringstream words(command);
  for (std::string word; words >> word;)
    if (word != "env" && word != "exec" && word.find('=') == std::string::npos)
      return word.starts_with('-') ? std::string{} : word;
  return {};
}

bool shell_succeeds(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/bin/sh");
  const auto shell = start_program({std::move(arguments), {}}, 0);
  int status = 0;
  return shell && ::waitpid(shell->pid, &status, 0) == shell->pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace

std::string replacing_the_shell(const std::string& command) {
  const std::string first = command.substr(0, command.find_first_of(" \t"));
  const bool plain =
      first.find('=') == std::string::npos && first != "exec" && first != "cd" && !first.empty();
  return has_only_words(command) && plain ? "exec " + command : command;
}

std::optional<Error> command_obstacle(const std::string& option, const std::string& command) {
  if (command.empty()) return std::nullopt;
  if (!shell_succeeds({"-n", "-c", command}))
    return Error{ErrorCode::usage, fmt::format("{}: /bin/sh does not understand '{}'", option, command),
                 "it takes a shell command line", 0};
  const std::string program = program_of(command);
  if (!program.empty() && !shell_succeeds({"-c", "command -v -- \"$1\"", "sh", program}))
    return Error{ErrorCode::usage, fmt::format("{}: there is no program '{}' to run", option, program),
                 "check its path", 0};
  return std::nullopt;
}

}  // namespace whomap::cli
