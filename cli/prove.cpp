// SPDX-License-Identifier: Apache-2.0
// whomap prove-gdb: asked by the plugin inside a GDB, which cannot be tried out on itself.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/gdb_proof.h"

namespace po = boost::program_options;

namespace whomap::cli {
namespace {

ExitStatus run(const std::vector<std::string>& arguments) {
  CommandLine line("prove-gdb", "--gdb FILE", "try a GDB out on a throw-away process");
  std::string path;
  line.options().add_options()("gdb", po::value(&path)->value_name("FILE")->required(), "the GDB");
  if (const auto stop = line.parse(arguments)) return *stop;
  const auto proven = prove_gdb(path);
  if (!proven) return report_error(proven.error());
  return print_text(fmt::format("{} calls were captured in their stubs\n", proven->calls));
}

}  // namespace

const CommandInfo prove_command{"prove-gdb", "try a GDB out on a throw-away process", run, true};

}  // namespace whomap::cli
