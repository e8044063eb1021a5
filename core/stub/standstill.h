// SPDX-License-Identifier: Apache-2.0
// All threads of a process stopped at once, for a few milliseconds, by ptrace without a signal
// (PTRACE_SEIZE and PTRACE_INTERRUPT, man 2 ptrace); or by a debugger, for as long as it likes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/stub/trace_stop.h"

namespace whomap {

struct StandstillLimits {
  /// The first attempt; each further one gets twice as long. When a thread has not stopped by then (it waits
  /// for a vfork child, or for a disk), the others run on and a new attempt is made once that thread can
  /// stop.
  int attempt_ms = 5;
  /// A little for each thread on top: stopping one costs some 10 us.
  int attempt_us_per_thread = 30;
  int patience_ms = 10'000;  ///< all attempts together
};

/// Who stops a process for a change of its code.
enum class StopBy {
  seizing,   ///< nobody traces it yet: Standstill::begin()
  debugger,  ///< this thread belongs to the debugger that has stopped it: Standstill::of_debugger()
};

/// The threads are stopped from begin() on and run again when the object dies, wherever that happens: the
/// kernel lets go of them too when this process is killed. Belongs to the thread that made it.
class Standstill {
 public:
  /// Errors: process_ended, already_traced, not_permitted; not_stoppable when a thread cannot be stopped,
  /// naming it and the system call it is in.
  static Result<Standstill> begin(const Target& target, const StandstillLimits& limits = {});

  /// In the thread of a debugger that has attached to all threads (PTRACE_ATTACH) and has stopped them. They
  /// stay as they are when the object ends. Errors: not_stoppable, naming a thread that is not stopped, or
  /// not by this thread; process_ended.
  static Result<Standstill> of_debugger(const Target& target);
  static Result<Standstill> by(StopBy whom, const Target& target) {
    return whom == StopBy::debugger ? of_debugger(target) : begin(target);
  }
  [[nodiscard]] bool is_debuggers() const { return debuggers_; }

  Standstill(Standstill&& other) noexcept;
  Standstill& operator=(Standstill&&) = delete;
  ~Standstill();

  /// Lets the threads run on. Signals that came meanwhile are delivered now.
  void end();

  /// The stopped threads. A thread that is being ended by exit_group or SIGKILL disappears from the stop.
  [[nodiscard]] const std::vector<pid_t>& threads() const { return stopped_; }
  /// How long the first thread has stood still until now, or until end().
  [[nodiscard]] std::uint64_t nanoseconds() const;

  /// Writes over any mapped memory of the target, read-only code included, as a debugger does: through
  /// /proc/PID/mem, or word by word with PTRACE_POKEDATA where the kernel refuses forced writes
  /// (proc_mem.force_override, Linux 6.12). False when it could not all be written.
  bool write(std::uint64_t address, std::span<const std::uint8_t> bytes);

  /// Signals that a thread got while it ran for us; they are sent again by end().
  std::vector<HeldSignal>& late_signals() { return late_; }

 private:
  Standstill() = default;
  bool seize_new(const Target& target, std::vector<pid_t>& waiting, Result<void>& problem);
  void collect(std::vector<pid_t>& waiting);
  void let_go(pid_t tid);

  pid_t pid_ = -1;
  std::vector<pid_t> stopped_;
  std::vector<pid_t> stragglers_;    ///< seized, not stopped yet
  std::vector<HeldSignal> signals_;  ///< about to be delivered when the thread stopped
  std::vector<HeldSignal> late_;     ///< came while the thread ran for us
  unsigned looks_ = 0;
  bool debuggers_ = false;
  std::uint64_t began_ns_ = 0, ended_ns_ = 0;
};

}  // namespace whomap
