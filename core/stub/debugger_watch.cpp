// SPDX-License-Identifier: Apache-2.0
#include "core/stub/debugger_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/process/status.h"
#include "core/stub/carriers.h"

namespace whomap {
namespace {

/// Who traces the process; 0: nobody.
pid_t tracer_of(pid_t pid) {
  const auto status = read_status(pid);
  return status ? status->tracer_pid.value_or(0) : 0;
}

/// A killed debugger leaves behind the SIGSTOP with which it had stopped a thread or a new child. It shows
/// when the thread gets to run.
void resume_left_stopped(const Target& target, const StubState& state) {
  const auto resume = [](const Target& process) {
    const auto status = read_status(process.pid());
    if (status && status->state == 'T' && status->tracer_pid.value_or(0) == 0)
      ::syscall(SYS_pidfd_send_signal, process.pidfd(), SIGCONT, nullptr, 0);
  };
  resume(target);
  for (const pid_t carrier : find_carriers(state))
    if (const auto child = Target::open(carrier)) resume(*child);
}

/// An exec waits until the other threads are gone, and a traced one is gone when its tracer has taken notice.
/// GDB 13.1 sometimes does not: it waits for a stop of the very thread that waits in exec (seen in 1 of 10
/// execs at full rate). Then all threads but one are zombies, and stay so.
bool waits_in_exec(const Target& target) {
  const auto status = read_status(target.pid());
  if (!status || (status->state != 'D' && status->state != 'Z')) return false;
  std::size_t waiting = 0;
  std::size_t zombies = 0;
  std::size_t others = 0;
  for (const pid_t tid : target.threads()) {
    const auto text = read_file(fmt::format("/proc/{}/task/{}/status", target.pid(), tid));
    const char state = text ? parse_status(*text).state : 'X';
    ++(state == 'D' ? waiting : state == 'Z' ? zombies : others);
  }
  return waiting == 1 && zombies > 0 && others == 0;
}

}  // namespace

void wait_for_end(const Target& target, const CurrentStubs& stubs, const UniqueFd& channel,
                  bool ends_debugger) {
  constexpr int look_every_ms = 20;
  constexpr int looks_after_death = 50;
  constexpr int patience_with_exec = 25;
  pid_t tracer = 0;
  UniqueFd tracer_fd;
  int looks_left = 0;
  int looks_in_exec = 0;
  while (true) {
    pollfd waiting[] = {
        {channel.get(), POLLIN, 0}, {target.pidfd(), POLLIN, 0}, {tracer_fd.get(), POLLIN, 0}};
    if (::poll(waiting, 3, look_every_ms) < 0 && errno != EINTR) return;
    const bool tracer_died = waiting[2].revents != 0;
    if (tracer_died) {
      if (tracer_of(target.pid()) == 0) set_traps(target.pid(), stubs(), Traps::off);
      tracer_fd.reset();
      looks_left = looks_after_death;
    }
    if (looks_left > 0) {
      --looks_left;
      resume_left_stopped(target, stubs());
    }
    if (waiting[0].revents != 0 || waiting[1].revents != 0) {
      // What a debugger killed in this moment leaves shows a little later.
      for (; looks_left > 0; --looks_left) {
        pollfd ended{target.pidfd(), POLLIN, 0};
        if (::poll(&ended, 1, look_every_ms) > 0) return;
        resume_left_stopped(target, stubs());
      }
      return;
    }
    const pid_t now = tracer_of(target.pid());
    looks_in_exec = ends_debugger && now != 0 && waits_in_exec(target) ? looks_in_exec + 1 : 0;
    // Nothing of ours is left in a process that is in exec: the tracer's death cannot hurt it.
    if (looks_in_exec > patience_with_exec && now == tracer)
      ::syscall(SYS_pidfd_send_signal, tracer_fd.get(), SIGKILL, nullptr, 0);
    if (now == tracer) continue;
    if (tracer != 0 && now == 0) set_traps(target.pid(), stubs(), Traps::off);
    tracer = now;
    tracer_fd = UniqueFd(now == 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, now, 0)));
  }
}

void wait_for_debugger(const Target& target, const std::function<bool()>& enough) {
  while (tracer_of(target.pid()) != 0 && !enough()) {
    pollfd ended{target.pidfd(), POLLIN, 0};
    if (::poll(&ended, 1, 10) > 0) return;
  }
}

}  // namespace whomap
