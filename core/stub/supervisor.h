// SPDX-License-Identifier: Apache-2.0
// A process of its own keeps the stubs: it puts them in, and takes them out when it is told to, or when the
// process that started it dies. Nothing else has to live for the target to get its code back.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/stub/installation.h"
#include "core/stub/removal.h"

namespace whomap {

/// The supervising process: installs, reports on `channel` (SOCK_SEQPACKET), serves orders, removes, reports,
/// returns. While a debugger is attached it removes nothing but disarms at once; when the debugger is gone,
/// all.
void supervise(const Target& target, const Plan& plan, StubEngine& engine, const UniqueFd& channel);

/// The same for a debugger that puts stubs in itself, and takes them out (StopBy::debugger): holds the lock,
/// says {"state": "standing-by"}, disarms when the debugger dies, and when the debugger is gone removes what
/// is still in by the state file. Ends when the channel is closed and nothing is left in.
void stand_by(const Target& target, const UniqueFd& channel);

/// The same for an error that comes before that.
void report_failure(const UniqueFd& channel, const Error& error);

/// The other side of it.
class SupervisedStubs {
 public:
  /// Starts `program supervise --engine ENGINE`, hands it the plan, and waits until the stubs are in.
  /// Errors: those of install_stubs; kernel_feature when the supervisor could not be started or ended early.
  static Result<SupervisedStubs> start(const std::string& program, const Plan& plan,
                                       const std::string& engine);

  SupervisedStubs(SupervisedStubs&& other) noexcept
      : channel_(std::move(other.channel_)),
        pid_(std::exchange(other.pid_, -1)),
        installed_(std::move(other.installed_)),
        ring_(std::move(other.ring_)),
        tsc_forbidden_(other.tsc_forbidden_),
        thread_bases_(std::move(other.thread_bases_)) {}
  SupervisedStubs& operator=(SupervisedStubs&&) = delete;
  ~SupervisedStubs();  ///< as remove(), without the answer

  [[nodiscard]] const Installed& installed() const { return installed_; }
  /// The memory shared with the target; not valid when the engine has none, or when it was taken before.
  UniqueFd take_ring() { return std::move(ring_); }
  [[nodiscard]] bool tsc_is_forbidden() const { return tsc_forbidden_; }
  [[nodiscard]] const std::vector<ThreadBase>& thread_bases() const { return thread_bases_; }

  /// Takes the stubs out of the target and of the children that carry them. Once.
  Result<Removed> remove();

 private:
  SupervisedStubs(UniqueFd channel, pid_t pid, Installed installed)
      : channel_(std::move(channel)), pid_(pid), installed_(std::move(installed)) {}
  UniqueFd channel_;
  pid_t pid_;
  Installed installed_;
  UniqueFd ring_;
  bool tsc_forbidden_ = false;
  std::vector<ThreadBase> thread_bases_;
};

}  // namespace whomap
