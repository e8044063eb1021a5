// SPDX-License-Identifier: Apache-2.0
// System calls made by a stopped thread of the target for us.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/process/target.h"
#include "core/stub/call_room.h"
#include "core/stub/standstill.h"

namespace whomap {

/// Where in the target calls are made.
struct CallPlace {
  std::optional<CallRoom> room;
  std::string nonce;                  ///< 32 characters that mark a room in use as ours
  std::uint64_t syscall_address = 0;  ///< of a `syscall` instruction, for when there is no room
};

/// One thread lends itself. Its registers and signal mask are as before when the object dies, also the
/// interrupted system call that the kernel is about to restart in it. With a room that also holds when this
/// process is killed at any moment (a call under way is finished then; a signal that comes in that moment
/// does not interrupt the call that the thread was waiting in). Without one, the thread would run on at the
/// wrong place.
class RemoteCalls {
 public:
  /// `stillness` must outlive the object. Threads that wait in a system call come first, those with a
  /// seccomp filter last: the filter is suspended only as long as this process lives.
  /// Errors: not_stoppable when no thread is fit for it; kernel_feature when all threads that are have a
  /// seccomp filter and the filter cannot be suspended (PTRACE_O_SUSPEND_SECCOMP, needs CAP_SYS_ADMIN; never
  /// in a debugger's standstill, where it would replace options that cannot be read).
  static Result<RemoteCalls> borrow(const Target& target, Standstill& stillness, CallPlace place);

  /// The same in a thread that this one has attached to by other means (PTRACE_ATTACH, with
  /// PTRACE_O_TRACESYSGOOD) and that is stopped, not in a system call. Signals that come meanwhile go into
  /// `late`, which must outlive the object.
  static Result<RemoteCalls> in_stop(pid_t tid, std::uint64_t syscall_address, std::vector<HeldSignal>& late);

  /// Makes further calls in another room and leaves the one until now as it was found. Errors: process_ended,
  /// not_permitted.
  Result<void> move_to(CallRoom room);

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
  /// How the thread is stopped again after a call.
  enum class Parking {
    interrupt,    ///< PTRACE_INTERRUPT, as it was found; it is seized
    signal,       ///< SIGSTOP, as a debugger stops threads and expects to find them
    system_call,  ///< behind the call
  };
  RemoteCalls(std::vector<HeldSignal>& late, Standstill* stillness, pid_t tid, CallPlace place,
              Parking parking)
      : late_(&late), stillness_(stillness), tid_(tid), place_(std::move(place)), parking_(parking) {}
  [[nodiscard]] std::uint64_t syscall_address() const;
  [[nodiscard]] user_regs_struct registers_at_home() const;
  bool take();
  bool enter(CallRoom room);
  bool set_mask(std::uint64_t mask);
  Result<std::uint64_t> run();
  Result<int> resume(int request);
  void stop_by_signal();
  void give_back();

  std::vector<HeldSignal>* late_;
  Standstill* stillness_;  ///< nullptr: the thread is borrowed by in_stop()
  pid_t tid_;
  CallPlace place_;
  Parking parking_;
  user_regs_struct registers_{};
  std::uint64_t signal_mask_ = 0;
  bool restarts_calls_ = true;  ///< after this stop the kernel looks at interrupted system calls again
};

}  // namespace whomap
