// SPDX-License-Identifier: Apache-2.0
// From "this thread stands at this watched instruction" to a captured call. Runs in the tracer, on the
// thread that holds the ptrace relation, while the target's thread is stopped: it must be quick.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/capture/channel.h"
#include "core/plan/plan.h"

namespace whomap {

/// What is needed of a stopped thread. Separate so that tests can play a thread.
class StoppedThreads {
 public:
  virtual ~StoppedThreads() = default;
  /// PTRACE_GETREGS; false when the thread cannot be read.
  virtual bool registers(pid_t tid, user_regs_struct& into) = 0;
  /// Copies up to into.size() bytes from `address`; returns how many.
  virtual std::size_t memory(pid_t tid, std::uint64_t address, std::span<std::byte> into) = 0;
};

/// The real ones. May be used only on the thread that attached (man 2 ptrace).
class PtraceThreads : public StoppedThreads {
 public:
  bool registers(pid_t tid, user_regs_struct& into) override;
  std::size_t memory(pid_t tid, std::uint64_t address, std::span<std::byte> into) override;
};

class HitRecorder {
 public:
  using Send = std::function<bool(const CallEvent&, const Registers&, const StackView&)>;

  /// `stack_bytes`: how much of the stack is copied from rsp upwards, at most max_stack_copy.
  HitRecorder(const Plan& plan, std::size_t stack_bytes, StoppedThreads& threads, Send send);

  /// The thread is about to execute the syscall instruction of `site` (paired sites).
  void at_syscall(std::uint32_t site, pid_t tid);
  /// The thread is at the return address of `site`; for paired sites only a call that at_syscall()
  /// saw the same thread start, with the same stack pointer, is captured.
  void at_return(std::uint32_t site, pid_t tid);

  /// The thread is behind the `syscall` of the stub of `site`, which it has reached with this number: one
  /// thread, one call, one result.
  void at_trap(std::uint32_t site, std::int64_t number, pid_t tid);

  /// From now on so much of each stack, bytes; at most max_stack_copy.
  void copy_at_most(std::size_t stack_bytes) { stack_bytes_ = std::min(stack_bytes, max_stack_copy); }

  /// All threads stood still for this long (measured around attach and detach).
  void stopped_for(std::uint64_t nanoseconds);

  /// The tracer spent this much processor time on its hits.
  void busy_for(std::uint64_t nanoseconds) { counts_.busy_ns += nanoseconds; }

  /// Calls seen to start and not to return are counted as unpaired.
  [[nodiscard]] TracerCounts counts() const;

 private:
  struct Pending {
    std::uint32_t site;
    std::uint64_t stack_pointer;
    std::uint64_t enter_ns;
    std::int64_t number;
    std::array<std::uint64_t, 6> arguments;
  };
  /// Counts the hit and reads the thread's registers; false when they cannot be read.
  bool count_hit(pid_t tid, user_regs_struct& registers);
  void capture(const Pending& call, const user_regs_struct& registers, pid_t tid);

  const std::vector<Site> sites_;
  std::vector<std::byte> stack_, other_stack_;
  std::size_t stack_bytes_;
  StoppedThreads& threads_;
  Send send_;
  TracerCounts counts_;
  /// Calls under way, per thread, outermost first: a signal handler can make calls inside a call.
  std::unordered_map<pid_t, std::vector<Pending>> pending_;
};

}  // namespace whomap
