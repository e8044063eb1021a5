// SPDX-License-Identifier: Apache-2.0
// The GDB command file that carries out a plan: run as `gdb -nx -batch -x FILE`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace whomap {

struct ScriptOptions {
  std::string plugin_folder;        ///< holds the Python package whomap_gdb and its module _whomap
  std::size_t stack_bytes = 32768;  ///< copied per capture

  /// Descriptors that GDB inherits from a whomap that started it.
  std::optional<int> channel_fd;
  std::optional<int> status_fd;
  /// The StubState (core/stub) of stubs that are in the target, for the plugin to arm; null: there are none.
  nlohmann::ordered_json stubs;
  /// Otherwise the script itself starts this command, which receives the captures (whomap collect ...).
  std::vector<std::string> collector;
};

/// The text of the command file. It needs GDB 12 or later with Python.
std::string gdb_script(const Plan& plan, const ScriptOptions& options);

}  // namespace whomap
