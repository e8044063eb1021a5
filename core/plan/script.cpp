// SPDX-License-Identifier: Apache-2.0
#include "core/plan/script.h"

#include <fmt/format.h>

#include "core/base/version.h"

namespace whomap {
namespace {

/// Settings that keep GDB from reading, loading or running anything that belongs to the target, and from
/// planting breakpoints of its own. The folder for sysroot is one that can not exist: with it GDB finds
/// neither libraries nor the dynamic loader, in whose code it would put a breakpoint (_dl_debug_state).
/// GDB's worker threads go because they do not block TERM and HUP, which the plugin waits for.
constexpr std::string_view settings = R"(maint set worker-threads 0
set suppress-cli-notifications on
set pagination off
set confirm off
set width 0
set height 0
set auto-load no
set auto-solib-add off
set sysroot /proc/whomap-empty-sysroot
set libthread-db-search-path /proc/whomap-empty-sysroot
set debuginfod enabled off
set history save off
set print thread-events off
set print inferior-events off
set breakpoint pending off
set follow-fork-mode parent
set detach-on-fork on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
)";

/// JSON inside r'''...''': a raw string keeps JSON's backslashes, and the quote is written as an escape.
std::string quoted(const nlohmann::ordered_json& json) {
  std::string text;
  for (const char c : json.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace))
    if (c == '\'')
      text += "\\u0027";
    else
      text += c;
  return text;
}

}  // namespace

std::string gdb_script(const Plan& plan, const ScriptOptions& options) {
  nlohmann::ordered_json configuration;
  configuration["stack_bytes"] = options.stack_bytes;
  if (options.channel_fd) configuration["channel_fd"] = *options.channel_fd;
  if (options.status_fd) configuration["status_fd"] = *options.status_fd;
  if (!options.collector.empty()) configuration["collector"] = options.collector;
  if (!options.stubs.is_null()) configuration["stubs"] = options.stubs;
  configuration["plan"] = to_json(plan);
  nlohmann::ordered_json folder = options.plugin_folder;

  return fmt::format(
      "# Traces process {} ({}); written by whomap {}.\n"
      "# Run it as:  gdb -nx -batch -x THIS_FILE\n"
      "# It attaches, watches the instructions of the plan below, and detaches by itself.\n"
      "{}"
      "python\n"
      "import json, sys\n"
      "sys.dont_write_bytecode = True\n"
      "sys.path.insert(0, json.loads(r'''{}'''))\n"
      "import whomap_gdb\n"
      "whomap_gdb.run(json.loads(r'''\n{}\n'''))\n"
      "end\n",
      plan.target.pid, printable(plan.target.comm), WHOMAP_VERSION, settings, quoted(folder),
      quoted(configuration));
}

}  // namespace whomap
