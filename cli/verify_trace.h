// SPDX-License-Identifier: Apache-2.0
// whomap trace beside a running exercise, for --gone and --present.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/verify/process_group.h"

namespace whomap::cli {

/// `whomap trace` as a child process of its own: it must be able to let the target go even when this one is
/// killed. What it writes lies in a private folder that is removed with this object.
class EffectTrace {
 public:
  /// Why no trace would come about, as far as that can be known beforehand; `pid` is nullopt for a program
  /// that is yet to be started.
  static std::optional<Error> obstacle(std::optional<pid_t> pid);

  /// Returns when the trace watches the target. `seconds` is how long it may take at most; finish() ends it
  /// earlier. Errors: those of whomap trace, with its words; interrupted when `interrupt_fd` becomes
  /// readable.
  static Result<EffectTrace> start(pid_t pid, double seconds, int interrupt_fd);

  /// Ends the trace and returns its report (JSON).
  Result<std::string> finish();

  EffectTrace(EffectTrace&& other) noexcept;
  EffectTrace& operator=(EffectTrace&&) = delete;
  ~EffectTrace();

 private:
  EffectTrace(std::string folder, ChildProcess child)
      : folder_(std::move(folder)), child_(std::move(child)) {}

  /// The exit status once it has ended within that time; -1 before.
  int wait(int milliseconds);
  [[nodiscard]] Error failure(int exit_status) const;

  std::string folder_;
  ChildProcess child_;
  int exit_status_ = -1;
};

}  // namespace whomap::cli
