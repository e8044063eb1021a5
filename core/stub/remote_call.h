// SPDX-License-Identifier: Apache-2.0
// System calls made by a stopped thread of the target for us.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/stub/standstill.h"

namespace whomap {

/// One thread lends itself. Its registers and signal mask are as before when the object dies, also the
/// interrupted system call that the kernel is about to restart in it.
class RemoteCalls {
 public:
  /// `syscall_address`: of a `syscall` instruction in the target. `stillness` must outlive the object.
  /// Errors: not_stoppable when no thread is fit for it; kernel_feature when all threads that are have a
  /// seccomp filter and the filter cannot be suspended (PTRACE_O_SUSPEND_SECCOMP, needs CAP_SYS_ADMIN).
  static Result<RemoteCalls> borrow(const Target& target, Standstill& stillness,
                                    std::uint64_t syscall_address);

  /// The same in a thread that this one has attached to by other means (PTRACE_ATTACH, with
  /// PTRACE_O_TRACESYSGOOD) and that is stopped, not in a system call. Signals that come meanwhile go into
  /// `late`, which must outlive the object.
  static Result<RemoteCalls> in_stop(pid_t tid, std::uint64_t syscall_address, std::vector<HeldSignal>& late);

  RemoteCalls(RemoteCalls&& other) noexcept;
  RemoteCalls& operator=(RemoteCalls&&) = delete;
  ~RemoteCalls();

  /// The result as in rax: -4095..-1 is an errno. No signal handler runs meanwhile: all signals are blocked.
  /// Errors: process_ended, not_stoppable; the object is of no more use then.
  Result<std::uint64_t> call(std::int64_t number, const std::array<std::uint64_t, 6>& arguments);

  /// The same, and an errno is an error as well: unsupported_target, naming the call.
  Result<std::uint64_t> call_or_fail(const char* name, std::int64_t number,
                                     const std::array<std::uint64_t, 6>& arguments);

  [[nodiscard]] pid_t tid() const { return tid_; }

 private:
  RemoteCalls(std::vector<HeldSignal>& late, pid_t tid, std::uint64_t syscall_address, bool seized)
      : late_(&late), tid_(tid), syscall_address_(syscall_address), seized_(seized) {}
  bool take();
  Result<std::uint64_t> run();
  Result<int> resume(int request);
  void give_back();

  std::vector<HeldSignal>* late_;
  pid_t tid_;
  std::uint64_t syscall_address_;
  bool seized_;  ///< PTRACE_INTERRUPT is possible
  user_regs_struct registers_{};
  std::uint64_t signal_mask_ = 0;
  bool in_event_stop_ = true;  ///< the kernel looks at interrupted system calls again after such a stop
};

}  // namespace whomap
