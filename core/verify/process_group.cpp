// SPDX-License-Identifier: Apache-2.0
#include "core/verify/process_group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "core/verify/process_table.h"

namespace whomap {
namespace {

using Clock = std::chrono::steady_clock;

/// The guard's whole life. It keeps no descriptor but its pipe: not the terminal, not a CI's output pipe.
[[noreturn]] void guard_group(int lifeline) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);  // TERM and INT for the group are not for the guard
  ::prctl(PR_SET_NAME, "whomap-guard");
  constexpr int below_5_9_highest = 4096;  // close_range came with Linux 5.9
  if (lifeline > 0) ::close_range(0, static_cast<unsigned>(lifeline) - 1, 0);
  if (::close_range(static_cast<unsigned>(lifeline) + 1, ~0U, 0) != 0)
    for (int fd = 0; fd < below_5_9_highest; ++fd)
      if (fd != lifeline) ::close(fd);
  char nothing = 0;
  while (::read(lifeline, &nothing, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);
  ::_exit(0);
}

void default_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGQUIT, SIGCHLD})
    ::signal(each, SIG_DFL);
}

/// Between fork and exec, in a process without other threads.
[[noreturn]] void become(const Launch& what, char* const* arguments, pid_t group, pid_t parent, int report) {
  ::setpgid(0, group);
  ::prctl(PR_SET_PDEATHSIG, what.death_signal);
  const int nothing = ::open("/dev/null", O_RDWR);
  const int output = what.output >= 0 ? what.output : nothing;
  const int errors = what.errors >= 0 ? what.errors : output;
  // whomap may have been killed before the death signal was asked for.
  const bool ready = nothing >= 0 && ::getppid() == parent && ::dup2(nothing, STDIN_FILENO) >= 0 &&
                     ::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(errors, STDERR_FILENO) >= 0;
  for (const auto& [name, value] : what.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (ready) {
    default_signals();
    ::execvp(arguments[0], arguments);
  }
  const int why = errno;
  (void)!::write(report, &why, sizeof why);
  ::_exit(127);
}

bool group_has_others(pid_t guard) {
  const auto table = read_process_table();
  return std::any_of(table.begin(), table.end(), [&](const ProcessEntry& entry) {
    return entry.group == guard && entry.pid != guard && entry.state != 'Z' && entry.state != 'X';
  });
}

void reap_group(pid_t group) {
  while (::waitpid(-group, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

std::string ending_text(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exit status {}", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
  return fmt::format("wait status {:#x}", wait_status);
}

Result<ProcessGroup> ProcessGroup::create() {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return fail(ErrorCode::kernel_feature, "pipe2 failed", {}, errno);
  UniqueFd read_end(pipe[0]);
  UniqueFd write_end(pipe[1]);
  const pid_t guard = ::fork();
  if (guard < 0) return fail(ErrorCode::kernel_feature, "fork failed", {}, errno);
  if (guard == 0) {
    ::setpgid(0, 0);
    write_end.reset();  // or the guard would wait for itself
    guard_group(read_end.get());
  }
  ::setpgid(guard, guard);  // by both, so that neither has to wait for the other
  return ProcessGroup(guard, std::move(write_end));
}

ProcessGroup::ProcessGroup(ProcessGroup&& other) noexcept
    : guard_(std::exchange(other.guard_, -1)), lifeline_(std::move(other.lifeline_)) {}

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
  if (this == &other) return *this;
  end(0);
  guard_ = std::exchange(other.guard_, -1);
  lifeline_ = std::move(other.lifeline_);
  return *this;
}

ProcessGroup::~ProcessGroup() {
  if (guard_ > 0) end(0);
}

Result<ChildProcess> start_program(const Launch& what, pid_t group) {
  std::vector<std::string> words = what.arguments;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0)
    return fail(ErrorCode::kernel_feature, "pipe2 failed", {}, errno);
  const UniqueFd read_end(report[0]);
  UniqueFd write_end(report[1]);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return fail(ErrorCode::kernel_feature, "fork failed", {}, errno);
  if (child == 0) become(what, arguments.data(), group, self, report[1]);
  ::setpgid(child, group);
  write_end.reset();
  int why = 0;
  ssize_t got = 0;
  while ((got = ::read(read_end.get(), &why, sizeof why)) < 0 && errno == EINTR) {
  }
  if (got == sizeof why) {
    ::waitpid(child, nullptr, 0);
    return fail(ErrorCode::usage, fmt::format("{} cannot be executed", what.arguments.front()),
                "check its path", why);
  }
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (!pidfd.valid()) {
    const int problem = errno;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return fail(ErrorCode::kernel_feature, "pidfd_open failed", "Linux 5.3 or later is needed", problem);
  }
  return ChildProcess{child, std::move(pidfd)};
}

void ProcessGroup::end(double patience_seconds) {
  if (guard_ <= 0) return;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(patience_seconds));
  if (patience_seconds > 0) {
    ::kill(-guard_, SIGTERM);
    ::kill(-guard_, SIGCONT);  // a stopped process takes its SIGTERM only then
    while (reap_group(guard_), group_has_others(guard_) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(-guard_, SIGKILL);
  while (::waitpid(-guard_, nullptr, 0) > 0 || errno == EINTR) {
  }
  guard_ = -1;
  lifeline_.reset();
}

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void end_strays() {
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    bool any = false;
    // Each is our own child and not reaped, so its pid can mean nothing else.
    for (const ProcessEntry& entry : read_process_table()) {
      if (entry.parent != ::getpid()) continue;
      any = true;
      ::kill(entry.pid, Clock::now() < deadline ? SIGTERM : SIGKILL);
    }
    // A process in an uninterruptible wait dies when that ends.
    if (!any || Clock::now() > deadline + std::chrono::seconds(5)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace whomap
