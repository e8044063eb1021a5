// SPDX-License-Identifier: Apache-2.0
// What every subcommand shares: its entry in the table, its option parser, the common options.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/option_values.h"
#include "core/base/error.h"

namespace whomap::cli {

struct CommandInfo {
  std::string_view name;
  std::string_view summary;  ///< one line, for `whomap --help`
  ExitStatus (*run)(const std::vector<std::string>& arguments);
  bool hidden = false;  ///< used by whomap's own scripts, not shown in the help
};

extern const CommandInfo trace_command;
extern const CommandInfo watch_command;
extern const CommandInfo plan_command;
extern const CommandInfo script_command;
extern const CommandInfo match_command;
extern const CommandInfo report_command;
extern const CommandInfo import_command;
extern const CommandInfo verify_command;
extern const CommandInfo doctor_command;
extern const CommandInfo repair_command;
extern const CommandInfo collect_command;
extern const CommandInfo supervise_command;
extern const CommandInfo prove_command;
extern const CommandInfo throw_away_command;

enum class ColorMode { automatic, always, never };

struct CommonOptions {
  bool quiet = false;
  bool verbose = false;
  bool force = false;
  ColorMode color = ColorMode::automatic;

  /// Colour on this stream? NO_COLOR (https://no-color.org) and TERM=dumb switch `automatic` off.
  [[nodiscard]] bool use_color(int fd) const;
};

/// The command line of one subcommand.
///   CommandLine line("plan", "-p PID", "which instructions map memory");
///   line.options().add_options()("pid,p", ...);
///   if (auto stop = line.parse(arguments)) return *stop;   // --help, --version or wrong usage
class CommandLine {
 public:
  CommandLine(std::string name, std::string synopsis, std::string description);

  boost::program_options::options_description& options() { return visible_; }
  /// Names the positional arguments, in order; each may be given once.
  void positional(const std::string& name, const std::string& help);

  /// Empty when the command should go on; else the status to leave with (help or error was printed).
  std::optional<ExitStatus> parse(const std::vector<std::string>& arguments);

  [[nodiscard]] const boost::program_options::variables_map& values() const { return values_; }
  [[nodiscard]] bool has(const std::string& option) const { return values_.count(option) != 0; }
  template <class T>
  [[nodiscard]] const T& get(const std::string& option) const {
    return values_[option].as<T>();
  }
  [[nodiscard]] const CommonOptions& common() const { return common_; }

 private:
  [[nodiscard]] std::string help() const;

  std::string name_, synopsis_, description_;
  boost::program_options::options_description visible_, hidden_, common_options_;
  boost::program_options::positional_options_description positional_;
  std::string positional_help_;
  boost::program_options::variables_map values_;
  CommonOptions common_;
};

/// Writes `text` to standard output: done, or the status of the error it printed.
ExitStatus print_text(std::string_view text);

/// Prints "whomap: <one line>" on standard error and returns the error's exit status.
ExitStatus report_error(const Error& error);
/// The same for a usage error of a subcommand: adds where to find help.
ExitStatus report_usage(const std::string& command, const std::string& what);
ExitStatus report_usage(const std::string& command, const Error& error);

/// "whomap: TEXT" on standard error, unless -q.
void say(const CommonOptions& common, const std::string& text);

/// Writes a result: to standard output when `path` is "-", else to a new private file.
Result<void> write_result(const std::string& path, bool overwrite, std::string_view text);

}  // namespace whomap::cli
