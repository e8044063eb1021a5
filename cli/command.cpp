// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/version.h"
#include "core/process/syscalls.h"

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

Result<std::uint64_t> parse_bytes(const std::string& text) {
  const auto wrong = [&] {
    return fail(ErrorCode::usage, fmt::format("'{}' is not a size", text),
                "write bytes as 4096, 64K, 100M or 2G");
  };
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{}) return wrong();
  unsigned shift = 0;
  if (rest != end) {
    constexpr std::string_view units = "KMGT";
    const auto unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
    if (unit == std::string_view::npos || rest + 1 != end) return wrong();
    shift = 10 * (static_cast<unsigned>(unit) + 1);
  }
  if (number > (~std::uint64_t{0} >> shift)) return wrong();
  return number << shift;
}

Result<pid_t> parse_pid(const std::string& text) {
  constexpr int pid_max_limit = 4 * 1024 * 1024;  // include/linux/threads.h, 64-bit
  int pid = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (problem != std::errc{} || rest != text.data() + text.size() || pid < 1 || pid > pid_max_limit)
    return fail(ErrorCode::usage, fmt::format("'{}' is not a process id", text),
                "give the number that ps or pgrep prints");
  return pid;
}

Result<double> parse_seconds(const std::string& text) {
  constexpr double week = 7 * 86400.0;
  double seconds = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (problem != std::errc{} || rest != text.data() + text.size() || !(seconds > 0) || seconds > week)
    return fail(ErrorCode::usage, fmt::format("'{}' is not a duration", text),
                "give seconds above 0, up to a week");
  return seconds;
}

Result<std::vector<std::int64_t>> parse_syscalls(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    const MemorySyscall* call = memory_syscall(std::string_view(name));
    if (call == nullptr) {
      std::string known;
      for (const MemorySyscall& each : memory_syscalls)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
      return fail(ErrorCode::usage, fmt::format("'{}' is not a system call that maps memory", name),
                  fmt::format("known are {}", known));
    }
    if (std::find(numbers.begin(), numbers.end(), call->x86_64) == numbers.end())
      numbers.push_back(call->x86_64);
  }
  if (numbers.empty())
    return fail(ErrorCode::usage, "--syscalls names no call", "for example --syscalls mmap,munmap");
  return numbers;
}

}  // namespace whomap::cli
