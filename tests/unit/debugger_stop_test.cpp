// SPDX-License-Identifier: Apache-2.0
// Calls made in a process that a debugger has stopped: it finds the threads as it left them, and a sleep that
// was interrupted goes on.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/process/status.h"
#include "core/process/target.h"
#include "core/stub/remote_call.h"
#include "core/stub/standstill.h"

namespace whomap {
namespace {

/// glibc's syscall() is a `syscall` instruction within its first bytes; a fork has it at the same address.
std::uint64_t syscall_instruction() {
  std::array<unsigned char, 64> code{};
  std::memcpy(code.data(), reinterpret_cast<const void*>(&::syscall), code.size());
  for (std::size_t i = 0; i + 1 < code.size(); ++i)
    if (code[i] == 0x0F && code[i + 1] == 0x05) return reinterpret_cast<std::uint64_t>(&::syscall) + i;
  return 0;
}

class Sleeper {
 public:
  Sleeper() {
    pid_ = ::fork();
    if (pid_ == 0) {
      constexpr timespec an_hour{3600, 0};
      ::clock_nanosleep(CLOCK_MONOTONIC, 0, &an_hour, nullptr);
      ::_exit(1);  // interrupted
    }
    while (state() != 'S') ::usleep(1000);
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, __WALL);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// As GDB does (linux-nat.c): PTRACE_ATTACH, and the SIGSTOP is not passed on.
  void attach() const {
    ASSERT_EQ(::ptrace(PTRACE_ATTACH, pid_, nullptr, nullptr), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, __WALL), pid_);
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_TRACESYSGOOD);
  }
  [[nodiscard]] user_regs_struct registers() const {
    user_regs_struct found{};
    EXPECT_EQ(::ptrace(PTRACE_GETREGS, pid_, nullptr, &found), 0);
    return found;
  }
  [[nodiscard]] int stop_signal() const {
    siginfo_t info{};
    return ::ptrace(PTRACE_GETSIGINFO, pid_, nullptr, &info) == 0 ? info.si_signo : 0;
  }
  /// Lets it go. Does it sleep on? If not it ends.
  [[nodiscard]] bool sleeps_on() const {
    ::ptrace(PTRACE_DETACH, pid_, nullptr, nullptr);
    while (state() != 'S' && state() != 'Z') ::usleep(1000);
    return state() == 'S';
  }

 private:
  [[nodiscard]] char state() const {
    const auto status = read_status(pid_);
    return status ? status->state : 'Z';
  }
  pid_t pid_;
};

TEST(DebuggerStop, CallsLeaveTheThreadAsTheDebuggerLeftIt) {
  const Sleeper sleeper;
  const auto target = Target::open(sleeper.pid());
  ASSERT_TRUE(target);
  sleeper.attach();
  const user_regs_struct before = sleeper.registers();
  for (int round = 0; round < 3; ++round) {  // the second time after the first one's stop
    auto stillness = Standstill::of_debugger(*target);
    ASSERT_TRUE(stillness) << to_line(stillness.error());
    EXPECT_EQ(stillness->threads(), std::vector<pid_t>{sleeper.pid()});
    auto calls = RemoteCalls::borrow(*target, *stillness, {std::nullopt, {}, syscall_instruction()});
    ASSERT_TRUE(calls) << to_line(calls.error());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(calls->call(SYS_getpid, {}).value_or(0), static_cast<std::uint64_t>(sleeper.pid()));
  }
  const user_regs_struct after = sleeper.registers();
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
  EXPECT_EQ(sleeper.stop_signal(), SIGSTOP);
  EXPECT_TRUE(sleeper.sleeps_on());
}

TEST(DebuggerStop, AStandstillOfTheDebuggersStaysWhenTheObjectEnds) {
  const Sleeper sleeper;
  const auto target = Target::open(sleeper.pid());
  ASSERT_TRUE(target);
  sleeper.attach();
  (void)Standstill::of_debugger(*target);
  EXPECT_EQ(sleeper.stop_signal(), SIGSTOP);  // can be asked of a stopped thread only
  EXPECT_TRUE(sleeper.sleeps_on());
}

TEST(DebuggerStop, AThreadThatRunsOrIsNobodysIsRefused) {
  const Sleeper sleeper;
  const auto target = Target::open(sleeper.pid());
  ASSERT_TRUE(target);
  const auto refused = Standstill::of_debugger(*target);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::not_stoppable);
}

TEST(DebuggerStop, AThreadInTheMiddleOfACallIsNotBorrowed) {
  const Sleeper sleeper;
  const auto target = Target::open(sleeper.pid());
  ASSERT_TRUE(target);
  sleeper.attach();
  // Into the entry of the restarted sleep, as `catch syscall` stops.
  ASSERT_EQ(::ptrace(PTRACE_SYSCALL, sleeper.pid(), nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(sleeper.pid(), nullptr, __WALL), sleeper.pid());
  auto stillness = Standstill::of_debugger(*target);
  ASSERT_TRUE(stillness);
  const auto calls = RemoteCalls::borrow(*target, *stillness, {std::nullopt, {}, syscall_instruction()});
  ASSERT_FALSE(calls);
  EXPECT_EQ(calls.error().code, ErrorCode::not_stoppable);
  stillness->end();
  EXPECT_TRUE(sleeper.sleeps_on());
}

}  // namespace
}  // namespace whomap
