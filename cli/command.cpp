// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/version.h"

namespace po = boost::program_options;

namespace whomap::cli {

bool CommonOptions::use_color(int fd) const {
  if (color != ColorMode::automatic) return color == ColorMode::always;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return ::isatty(fd) == 1;
}

CommandLine::CommandLine(std::string name, std::string synopsis, std::string description)
    : name_(std::move(name)),
      synopsis_(std::move(synopsis)),
      description_(std::move(description)),
      visible_("Options"),
      common_options_("Common options") {
  common_options_.add_options()("quiet,q", po::bool_switch(&common_.quiet), "no progress on standard error")(
      "verbose,v", po::bool_switch(&common_.verbose), "say more on standard error")(
      "color", po::value<std::string>()->value_name("WHEN")->default_value("auto"),
      "auto, always or never; NO_COLOR is honoured")("force", po::bool_switch(&common_.force),
                                                     "replace existing output files")("help,h", "this text")(
      "version", "the version");
}

void CommandLine::positional(const std::string& name, const std::string& help) {
  hidden_.add_options()(name.c_str(), po::value<std::string>());
  positional_.add(name.c_str(), 1);
  positional_help_ += fmt::format("  {:<22}  {}\n", name, help);
}

std::string CommandLine::help() const {
  std::ostringstream text;
  text << fmt::format("whomap {}: {}\n\nUsage: whomap {} {}\n\n", name_, description_, name_, synopsis_);
  if (!positional_help_.empty()) text << "Arguments:\n" << positional_help_ << '\n';
  text << visible_ << '\n' << common_options_;
  return text.str();
}

std::optional<ExitStatus> CommandLine::parse(const std::vector<std::string>& arguments) {
  po::options_description all;
  all.add(visible_).add(hidden_).add(common_options_);
  try {
    po::store(po::command_line_parser(arguments)
                  .options(all)
                  .positional(positional_)
                  .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
                  .run(),
              values_);
    if (values_.count("help") != 0) {
      return print_text(help());
    }
    if (values_.count("version") != 0) {
      return print_text(fmt::format("whomap {}\n", WHOMAP_VERSION));
    }
    po::notify(values_);
  } catch (const po::too_many_positional_options_error&) {
    const unsigned most = positional_.max_total_count();
    return report_usage(name_, most == 0 ? "it takes options only, and no other arguments"
                                         : fmt::format("too many arguments: it takes {}: {} {}",
                                                       most == 1 ? "one" : fmt::format("at most {}", most),
                                                       name_, synopsis_));
  } catch (const po::error& wrong) {
    return report_usage(name_, wrong.what());
  }
  const std::string& when = values_["color"].as<std::string>();
  if (when == "always")
    common_.color = ColorMode::always;
  else if (when == "never")
    common_.color = ColorMode::never;
  else if (when != "auto")
    return report_usage(name_, fmt::format("--color is '{}', and must be auto, always or never", when));
  return std::nullopt;
}

ExitStatus print_text(std::string_view text) {
  const auto wrote = write_result("-", false, text);
  return wrote ? ExitStatus::done : report_error(wrote.error());
}

ExitStatus report_error(const Error& error) {
  std::fputs(fmt::format("whomap: {}\n", to_line(error)).c_str(), stderr);
  return exit_status(error.code);
}

ExitStatus report_usage(const std::string& command, const std::string& what) {
  return report_error({ErrorCode::usage, what, fmt::format("see whomap {} --help", command)});
}

ExitStatus report_usage(const std::string& command, const Error& error) {
  return report_usage(
      command, error.remedy.empty() ? error.happened : fmt::format("{}; {}", error.happened, error.remedy));
}

void say(const CommonOptions& common, const std::string& text) {
  if (!common.quiet) std::fputs(fmt::format("whomap: {}\n", printable(text)).c_str(), stderr);
}

Result<void> write_result(const std::string& path, bool overwrite, std::string_view text) {
  auto file = OutputFile::create(path, overwrite);
  if (!file) return tl::make_unexpected(file.error());
  if (auto wrote = file->write(text); !wrote) return wrote;
  return file->finish();
}

}  // namespace whomap::cli
