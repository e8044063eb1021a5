// SPDX-License-Identifier: Apache-2.0
#include "cli/capture_options.h"

#include <charconv>

#include <fmt/format.h>

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number value{};
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void add_capture_options(CommandLine& line) {
  line.options().add_options()
      ("duration,d", po::value<std::string>()->value_name("SEC")->default_value("10"), "how long to capture")
      ("max-hits", po::value<std::string>()->value_name("N"), "end after N captured calls")
      ("syscalls", po::value<std::string>()->value_name("LIST"), "which calls; default mmap,munmap,mremap,brk");
}

Result<CaptureOptions> capture_options(const CommandLine& line) {
  constexpr double week = 7 * 86400.0;
  CaptureOptions options;
  const auto seconds = number_of<double>(line.get<std::string>("duration"));
  if (!seconds || !(*seconds > 0) || *seconds > week)
    return fail(ErrorCode::usage, fmt::format("-d is '{}'", line.get<std::string>("duration")),
                "it takes seconds above 0 and up to a week");
  options.seconds = *seconds;
  if (line.has("max-hits")) {
    options.max_hits = number_of<std::uint64_t>(line.get<std::string>("max-hits"));
    if (options.max_hits.value_or(0) == 0)
      return fail(ErrorCode::usage, fmt::format("--max-hits is '{}'", line.get<std::string>("max-hits")),
                  "it takes a number above 0");
  }
  if (line.has("syscalls")) {
    auto syscalls = parse_syscalls(line.get<std::string>("syscalls"));
    if (!syscalls) return tl::make_unexpected(syscalls.error());
    options.syscalls = std::move(*syscalls);
  }
  return options;
}

}  // namespace whomap::cli
