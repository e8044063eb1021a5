// SPDX-License-Identifier: Apache-2.0
// Logs of other tools may hold anything. Compiled once for each kind (WHOMAP_LOG_KIND).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/lines.h"
#include "core/trace/importers/log_parser.h"

namespace {

class CheckingSink : public whomap::LogSink {
 public:
  void call(whomap::LoggedCall call) override {
    if (call.enter_ns > call.exit_ns || call.tid < 0 || call.pid < 0) std::abort();
    if (call.frames.empty() && !call.truncated) std::abort();
  }
  void problem(whomap::LogProblem, std::uint64_t) override {}
  void lost(std::uint64_t) override {}
  void note(const std::string&) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CheckingSink sink;
  const auto parser = whomap::make_log_parser(whomap::LogKind::WHOMAP_LOG_KIND, sink);
  std::string_view text(reinterpret_cast<const char*>(data), size);
  for (std::uint64_t number = 1; !text.empty(); ++number) parser->line(whomap::next_line(text), number);
  parser->end();
  return 0;
}
