// SPDX-License-Identifier: Apache-2.0
#include "cli/known_causes.h"

#include <filesystem>

#include <fmt/format.h>

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

/// Beside the program as it is built, and where an installation has it; empty when it is nowhere.
std::string signatures_path() {
  std::error_code problem;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", problem).parent_path();
  for (const auto& path :
       {here / "signatures.json", here.parent_path() / "share" / "whomap" / "signatures.json"})
    if (std::filesystem::exists(path, problem)) return path.string();
  return {};
}

}  // namespace

void add_signatures_option(CommandLine& line) {
  line.options().add_options()("signatures", po::value<std::string>()->value_name("FILE"),
                               "known causes and allocators of yours, beside those that whomap brings");
}

Result<SignatureFile> signatures_of(const CommandLine& line) {
  SignatureFile signatures;
  if (const std::string path = signatures_path(); !path.empty()) {
    auto known = load_signatures(path);
    if (!known) return known;
    signatures = std::move(*known);
  } else if (!line.common().quiet) {
    std::fputs("whomap: signatures.json is not beside the program: known causes are not looked for\n",
               stderr);
  }
  if (line.has("signatures")) {
    auto own = load_signatures(line.get<std::string>("signatures"));
    if (!own) return own;
    add_signatures(signatures, std::move(*own));
  }
  return signatures;
}

}  // namespace whomap::cli
