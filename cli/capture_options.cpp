// SPDX-License-Identifier: Apache-2.0
#include "cli/capture_options.h"

namespace po = boost::program_options;

namespace whomap::cli {
void add_capture_options(CommandLine& line) {
  line.options().add_options()("duration,d", po::value<std::string>()->value_name("SEC")->default_value("10"),
                               "how long to capture")("max-hits", po::value<std::string>()->value_name("N"),
                                                      "end after N captured calls")(
      "max-slowdown", po::value<std::string>()->value_name("PCT")->default_value("10"),
      "end when threads of the process wait for whomap for more than PCT % of a second; 100: no limit")(
      "syscalls", po::value<std::string>()->value_name("LIST"),
      "which calls; default mmap,munmap,mremap,brk");
}

Result<CaptureOptions> capture_options(const CommandLine& line) {
  CaptureOptions options;
  const auto seconds = parse_seconds(line.get<std::string>("duration"));
  if (!seconds) return tl::make_unexpected(seconds.error());
  options.seconds = *seconds;
  if (line.has("max-hits")) {
    const auto hits = count_value("--max-hits", line.get<std::string>("max-hits"), 1, ~std::uint64_t{0});
    if (!hits) return tl::make_unexpected(hits.error());
    options.max_hits = *hits;
  }
  const auto slowdown = percent_value("--max-slowdown", line.get<std::string>("max-slowdown"));
  if (!slowdown) return tl::make_unexpected(slowdown.error());
  options.max_slowdown = *slowdown;
  if (line.has("syscalls")) {
    auto syscalls = parse_syscalls(line.get<std::string>("syscalls"));
    if (!syscalls) return tl::make_unexpected(syscalls.error());
    options.syscalls = std::move(*syscalls);
  }
  return options;
}

}  // namespace whomap::cli
