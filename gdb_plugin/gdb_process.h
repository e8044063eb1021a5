// SPDX-License-Identifier: Apache-2.0
// A GDB that whomap starts, watches, and ends. Its script, status and output live in memory files: nothing
// is left behind, however either of the two ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

class GdbProcess {
 public:
  /// Writes the script for these descriptor numbers, which GDB inherits.
  using WriteScript = std::function<std::string(int channel_fd, int status_fd)>;

  /// Starts the GDB at `path` with -nx in a session of its own, with an environment that has only PATH and a
  /// locale: no terminal, so Ctrl-C reaches whomap alone, and nothing that would make its Python load other
  /// code. Errors: gdb_missing, kernel_feature.
  static Result<GdbProcess> start(const std::string& path, UniqueFd channel, const WriteScript& script);

  GdbProcess(GdbProcess&& other) noexcept;
  GdbProcess& operator=(GdbProcess&&) = delete;
  ~GdbProcess();  ///< ends GDB if it still runs, HUP first: it detaches then

  /// Waits for GDB to end by itself; true when it did. Else it may be slow, frozen or stopped: it is
  /// continued, asked again (HUP, which the plugin takes for an orderly end), and waited for much longer.
  /// Only then is it killed, after `before_kill` has taken the breakpoints out of the target.
  bool wait(
      double patience_seconds, const std::function<void()>& before_kill = [] {});

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Has a signal ended it that was not ours?
  [[nodiscard]] bool was_killed() const { return ending_signal_ != 0; }
  /// The objects that the plugin wrote to the status file so far, in order.
  [[nodiscard]] std::vector<nlohmann::json> status() const;
  /// What GDB printed, for -v.
  [[nodiscard]] std::string output() const;

  /// Why no trace came about, from the status file and the way GDB ended; asks GDB for its Python where these
  /// say nothing.
  [[nodiscard]] Error diagnose() const;

 private:
  GdbProcess() = default;
  bool reap(int milliseconds);

  std::string path_;
  pid_t pid_ = -1;
  int ending_signal_ = 0;  ///< it was killed by another
  UniqueFd pidfd_, status_, output_;
};

/// The gdb to use: WHOMAP_GDB, else the first in the absolute folders of PATH. Error: gdb_missing.
Result<std::string> find_gdb();

struct GdbFacts {
  std::string path;
  std::string version;  ///< GDB's own word: "13.1"
  std::string python;   ///< of the Python inside it: "3.11.2"
  std::string plugin;   ///< folder of the plugin that it loads
};

/// Starts GDB on nothing and loads the plugin in it, as a trace does. Errors: gdb_missing,
/// gdb_without_python, gdb_failed with the last line that GDB printed.
Result<GdbFacts> examine_gdb();

/// Where the plugin's files are: beside the program (build tree) or in ../lib/whomap (installed).
Result<std::string> find_plugin_folder();

}  // namespace whomap
