// SPDX-License-Identifier: Apache-2.0
// Each call of the table, and some that must not be in it: a child waits in it, is stopped and let go as by
// an attach, and says whether it got EINTR.
#include <gtest/gtest.h>

#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <ostream>
#include <string>

#include "core/base/files.h"
#include "core/process/interrupted_calls.h"

namespace whomap {
namespace {

const timespec an_hour{3600, 0};

long epoll_with(long number) {
  epoll_event event{};
  const int fd = ::epoll_create1(0);
  return number == SYS_epoll_pwait2 ? ::syscall(number, fd, &event, 1, &an_hour, nullptr, 8)
                                    : ::syscall(number, fd, &event, 1, -1, nullptr, 8);
}

long semaphore(long number) {
  const int id = ::semget(IPC_PRIVATE, 1, 0600);
  sembuf take{0, -1, 0};
  const long result = ::syscall(number, id, &take, 1, &an_hour);
  const int problem = errno;
  ::semctl(id, 0, IPC_RMID);
  errno = problem;
  return result;
}

long signal_wait() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::syscall(SYS_rt_sigtimedwait, &set, nullptr, &an_hour, 8);
}

long aio() {
  aio_context_t context = 0;
  io_event event{};
  if (::syscall(SYS_io_setup, 1, &context) != 0) return -ENOSYS;
  return ::syscall(SYS_io_getevents, context, 1, 1, &event, nullptr);
}

long ring() {
  io_uring_params parameters{};
  const long fd = ::syscall(SYS_io_uring_setup, 4, &parameters);
  if (fd < 0) return -ENOSYS;
  return ::syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
}

long receive(bool timeout, long number) {
  std::array<int, 2> pair{};
  char byte = 0;
  ::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.data());
  const timeval hour{3600, 0};
  if (timeout) ::setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof hour);
  return ::syscall(number, pair[0], &byte, 1, 0, nullptr, nullptr);
}

struct Wait {
  const char* call;  ///< the name when it must be found; nullptr when it goes on waiting
  const char* what;
  long (*enter)();
};

std::ostream& operator<<(std::ostream& out, const Wait& wait) {
  return out << wait.what;
}

const Wait waits[] = {
    {"epoll_wait", "epoll_wait", [] { return epoll_with(SYS_epoll_wait); }},
    {"epoll_pwait", "epoll_pwait", [] { return epoll_with(SYS_epoll_pwait); }},
    {"epoll_pwait2", "epoll_pwait2", [] { return epoll_with(SYS_epoll_pwait2); }},
    {"semop", "semop", [] { return semaphore(SYS_semop); }},
    {"semtimedop", "semtimedop", [] { return semaphore(SYS_semtimedop); }},
    {"rt_sigtimedwait", "rt_sigtimedwait", signal_wait},
    {"io_getevents", "io_getevents", aio},
    {"io_uring_enter", "io_uring_enter", ring},
    {"recvfrom with a timeout", "recv_timeout", [] { return receive(true, SYS_recvfrom); }},
    {"read with a timeout", "read_timeout", [] { return receive(true, SYS_read); }},
    {nullptr, "recv", [] { return receive(false, SYS_recvfrom); }},
    {nullptr, "poll", [] { return static_cast<long>(::poll(nullptr, 0, 3'600'000)); }},
    {nullptr, "nanosleep", [] { return ::syscall(SYS_nanosleep, &an_hour, nullptr); }},
    {nullptr, "futex",
     [] {
       static int word = 0;
       return ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &an_hour, nullptr, 0);
     }},
    {nullptr, "eventfd",
     [] {
       std::uint64_t value = 0;
       return static_cast<long>(::read(::eventfd(0, 0), &value, sizeof value));
     }},
    {nullptr, "inotify",
     [] {
       std::array<char, 4096> events;
       return static_cast<long>(::read(::inotify_init1(0), events.data(), events.size()));
     }},
};

class InterruptedCalls : public testing::TestWithParam<Wait> {};

/// "128" of the child's /proc/PID/syscall once it sleeps in a call with arguments.
bool is_waiting(pid_t child) {
  for (int i = 0; i < 2000; ++i, ::usleep(5'000)) {
    const std::string folder = "/proc/" + std::to_string(child);
    const auto stat = read_file(folder + "/stat").value_or("");
    const auto call = read_file(folder + "/syscall").value_or("");
    const bool sleeps = stat.find(") S ") != std::string::npos || stat.find(") D ") != std::string::npos;
    if (sleeps && parse_waiting_call(call)) return true;
    if (stat.find(") Z ") != std::string::npos) return false;
  }
  return false;
}

TEST_P(InterruptedCalls, AreNamedAndNoOthersAre) {
  const Wait& wait = GetParam();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const long result = wait.enter();
    const int said = result == -ENOSYS ? ENOSYS : result < 0 ? errno : 0;
    (void)!::write(pipe[1], &said, sizeof said);
    ::_exit(0);
  }
  ::close(pipe[1]);
  int said = -1;
  if (!is_waiting(child)) {
    (void)!::read(pipe[0], &said, sizeof said);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    GTEST_SKIP() << "this kernel refuses the call: errno " << said;
  }
  const auto target = Target::open(child);
  ASSERT_TRUE(target);
  const AttachRisk risk = find_attach_risk(*target);
  EXPECT_EQ(risk.unknown, 0U) << risk.why_unknown;
  ASSERT_EQ(risk.threads.size(), wait.call == nullptr ? 0U : 1U);
  if (wait.call != nullptr) {
    EXPECT_EQ(risk.threads[0].call, wait.call);
    EXPECT_EQ(risk.threads[0].tid, child);
  }

  ASSERT_EQ(::ptrace(PTRACE_SEIZE, child, nullptr, nullptr), 0);
  ::ptrace(PTRACE_INTERRUPT, child, nullptr, nullptr);
  ASSERT_EQ(::waitpid(child, nullptr, __WALL), child);
  ::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
  pollfd answer{pipe[0], POLLIN, 0};
  if (wait.call != nullptr) {
    ASSERT_EQ(::poll(&answer, 1, 20'000), 1) << "the call went on waiting: it is no risk on this kernel";
    ASSERT_EQ(::read(pipe[0], &said, sizeof said), static_cast<ssize_t>(sizeof said));
    EXPECT_EQ(said, EINTR);
  } else {
    EXPECT_TRUE(is_waiting(child));
    EXPECT_EQ(::poll(&answer, 1, 0), 0) << "the call was interrupted, and is not in the table";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
}

INSTANTIATE_TEST_SUITE_P(Waits, InterruptedCalls, testing::ValuesIn(waits),
                         [](const auto& wait) { return std::string(wait.param.what); });

TEST(InterruptedCallsText, ParsesWhatTheKernelWrites) {
  const auto call = parse_waiting_call("232 0x3 0x7ffd2c 0x1 0xffffffff 0x0 0x8 0x7ffd2c8 0x7f21c\n");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->number, 232);
  EXPECT_EQ(call->arguments[0], 3U);
  EXPECT_EQ(call->arguments[3], 0xffffffffU);
  for (const char* other :
       {"running\n", "-1 0x7ffd2c8 0x7f21c\n", "", "232", "232 0x3", "x 0x1 0x2 0x3 0x4 0x5 0x6"})
    EXPECT_FALSE(parse_waiting_call(other)) << other;
}

TEST(InterruptedCallsText, NamesThreadsByCallAndNotAllOfThem) {
  AttachRisk risk;
  EXPECT_EQ(risk_text(risk), "");
  risk.threads = {{7, "main", "epoll_wait"}};
  EXPECT_EQ(risk_text(risk),
            "1 thread waits in a call that returns EINTR when a tracer attaches: epoll_wait (7 main)");
  for (pid_t tid = 8; tid < 20; ++tid) risk.threads.push_back({tid, "worker", "epoll_wait"});
  risk.threads.push_back({20, "signals", "rt_sigtimedwait"});
  EXPECT_EQ(risk_text(risk),
            "14 threads wait in calls that return EINTR when a tracer attaches: epoll_wait (7 main, 8 "
            "worker, 9 worker, "
            "10 worker and 9 more), rt_sigtimedwait (20 signals)");
  risk = {{}, 2, "/proc/1/task/1/syscall may not be read"};
  EXPECT_EQ(risk_text(risk),
            "in which call 2 of the threads wait is not known: /proc/1/task/1/syscall may not be read");
  EXPECT_FALSE(risk.none());
}

}  // namespace
}  // namespace whomap
