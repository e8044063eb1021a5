// SPDX-License-Identifier: Apache-2.0
// A thread that is lent for calls gets home, wherever the tracer dies: each system call of the tracer in turn
// is the one before which it is killed, since nothing changes between two of them.
#include <gtest/gtest.h>

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/process/memory.h"
#include "core/process/vma.h"
#include "core/stub/call_room.h"
#include "core/stub/remote_call.h"
#include "core/stub/standstill.h"

namespace whomap {
namespace {

const std::string nonce(32, 'a');
constexpr std::uint64_t nap_ns = 30'000'000;

/// What the process that is lent tells of itself.
struct Shared {
  std::atomic<std::uint64_t> rounds, failures, signals;
  std::atomic<std::uint32_t> word;
  int to_read = -1, to_write = -1, epoll = -1;
};

Shared* shared;

bool nap(long number) {
  const std::uint64_t began = monotonic_ns();
  const timespec length{0, nap_ns};
  const long result = number == SYS_poll ? ::syscall(SYS_poll, nullptr, 0, nap_ns / 1'000'000)
                                         : ::syscall(number, &length, nullptr);
  return result == 0 && monotonic_ns() - began >= nap_ns;
}

bool read_one() {
  std::uint64_t value = 0;
  return ::read(shared->to_read, &value, sizeof value) == sizeof value;
}

bool wait_futex() {
  while (shared->word == 0)
    if (::syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, nullptr, nullptr, 0) != 0 && errno != EAGAIN)
      return false;
  shared->word = 0;
  return true;
}

/// EINTR is what epoll_wait returns after any attach (interrupted_calls_test.cpp); it must be nothing else.
bool wait_epoll() {
  epoll_event event{};
  int got = 0;
  while ((got = ::epoll_wait(shared->epoll, &event, 1, -1)) < 0)
    if (errno != EINTR) return false;
  return got == 1 && read_one();
}

/// Every register has a value of its own while it computes. False when one has changed.
bool compute() {
  std::uint64_t wrong = 0;
  asm volatile(
      R"(
      sub $144, %%rsp       # below: the red zone of the code around
      push %%rbp
      push %%rbx
      push $3000000
      mov $1, %%eax
      mov $2, %%ecx
      mov $3, %%edx
      mov $4, %%ebx
      mov $5, %%ebp
      mov $6, %%esi
      mov $7, %%edi
      mov $8, %%r8d
      mov $9, %%r9d
      mov $10, %%r10d
      mov $11, %%r11d
      mov $12, %%r12d
      mov $13, %%r13d
      mov $14, %%r14d
      mov $15, %%r15d
      movq %%r15, %%xmm15
   1: decq (%%rsp)
      jnz 1b
      add %%rax, (%%rsp)
      add %%rcx, (%%rsp)
      add %%rdx, (%%rsp)
      add %%rbx, (%%rsp)
      add %%rbp, (%%rsp)
      add %%rsi, (%%rsp)
      add %%rdi, (%%rsp)
      add %%r8, (%%rsp)
      add %%r9, (%%rsp)
      add %%r10, (%%rsp)
      add %%r11, (%%rsp)
      add %%r12, (%%rsp)
      add %%r13, (%%rsp)
      add %%r14, (%%rsp)
      add %%r15, (%%rsp)
      movq %%xmm15, %%rcx
      add %%rcx, (%%rsp)
      pop %%rax
      sub $135, %%rax       # 1 + 2 + ... + 15 + 15
      pop %%rbx
      pop %%rbp
      add $144, %%rsp
      )"
      : "=a"(wrong)
      :
      : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm15", "memory",
        "cc");
  return wrong == 0;
}

struct Life {
  const char* name;
  bool (*round)();
  long waits_in;   ///< the system call in which the tracer finds it; -1: it computes
  bool signalled;  ///< gets a signal while it is lent
};

std::ostream& operator<<(std::ostream& out, const Life& life) {
  return out << life.name;
}

const Life lives[] = {
    {"nanosleep", [] { return nap(SYS_nanosleep); }, SYS_nanosleep, false},  // restart_syscall
    {"poll", [] { return nap(SYS_poll); }, SYS_poll, false},                 // restart_syscall
    {"read", read_one, SYS_read, false},
    {"futex", wait_futex, SYS_futex, false},
    {"epoll_wait", wait_epoll, SYS_epoll_wait, false},
    {"read_with_signals", read_one, SYS_read, true},
    {"futex_with_signals", wait_futex, SYS_futex, true},
    {"compute", compute, -1, false},
    {"compute_with_signals", compute, -1, true},
};

void count_signal(int) {
  ++shared->signals;
}

[[noreturn]] void live(const Life& life) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  struct sigaction action {};
  action.sa_handler = count_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR2);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  while (true) {
    sigset_t now;
    const bool good = life.round();
    ::sigprocmask(SIG_SETMASK, nullptr, &now);
    if (!good || ::sigismember(&now, SIGUSR2) != 1 || ::sigismember(&now, SIGUSR1) != 0) ++shared->failures;
    ++shared->rounds;
  }
}

/// Of the tracer: 0 when all went well. `room` lies in memory of its own.
int lend(pid_t pid, const CallRoom& padding, const CallRoom& room) {
  const auto target = Target::open(pid);
  if (!target) return 1;
  auto stillness = Standstill::begin(*target);
  if (!stillness) return 2;
  ::getppid();  // from here on it is worth killing
  auto calls = RemoteCalls::borrow(*target, *stillness, {padding, nonce, 0});
  if (!calls) return 3;
  if (calls->call(SYS_getpid, {}) != static_cast<std::uint64_t>(pid)) return 4;
  if (!calls->move_to(room)) return 5;
  if (calls->call(SYS_getpid, {}) != static_cast<std::uint64_t>(pid)) return 6;
  if (calls->call(SYS_close, {9999, 0, 0, 0, 0, 0}) != static_cast<std::uint64_t>(-EBADF)) return 7;
  return 0;
}

/// Lets `tracer`, a stopped child, run to the entry of its system call number `count` since getppid and kills
/// it there. False when it ended by itself before. `before_death` is called right before.
bool kill_at(pid_t tracer, unsigned count, const std::function<void()>& before_death) {
  unsigned seen = 0;
  bool marked = false;
  bool entry = true;
  int status = 0;
  ::ptrace(PTRACE_SETOPTIONS, tracer, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  while (::ptrace(PTRACE_SYSCALL, tracer, nullptr, nullptr) == 0 && ::waitpid(tracer, &status, 0) == tracer &&
         WIFSTOPPED(status)) {
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    if (entry && marked && seen++ == count) {
      before_death();
      ::kill(tracer, SIGKILL);
      ::waitpid(tracer, &status, 0);
      return true;
    }
    if (entry &&
        ::ptrace(PTRACE_PEEKUSER, tracer, offsetof(user_regs_struct, orig_rax), nullptr) == SYS_getppid)
      marked = true;
    entry = !entry;
  }
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

class LentThread : public testing::TestWithParam<Life> {
 protected:
  void SetUp() override {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared = new (memory) Shared;
    shared->to_read = shared->to_write = ::eventfd(0, EFD_SEMAPHORE);
    shared->epoll = ::epoll_create1(0);
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(shared->epoll, EPOLL_CTL_ADD, shared->to_read, &event);
    code_ = ::mmap(nullptr, call_room_size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(code_, MAP_FAILED);
    child_ = ::fork();
    if (child_ == 0) live(GetParam());
  }

  void TearDown() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(shared->to_read);
    ::close(shared->epoll);
    ::munmap(code_, call_room_size);
    ::munmap(shared, sizeof *shared);
  }

  bool alive() const { return ::waitpid(child_, nullptr, WNOHANG) == 0; }

  /// Bounded, and only as long as the child lives.
  bool wait_until(const std::function<bool()>& reached) const {
    for (const std::uint64_t deadline = monotonic_ns() + 30'000'000'000; monotonic_ns() < deadline;) {
      if (reached()) return true;
      if (!alive()) return false;
      ::usleep(200);
    }
    return false;
  }

  bool waits() const {
    if (GetParam().waits_in < 0) return true;
    const auto call = read_file(fmt::format("/proc/{}/syscall", child_));
    return call && call->starts_with(std::to_string(GetParam().waits_in) + " ");
  }

  /// Lets it finish what it waits for.
  static void wake() {
    const std::uint64_t one = 1;
    (void)!::write(shared->to_write, &one, sizeof one);
    shared->word = 1;
    ::syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }

  pid_t child_ = -1;
  void* code_ = nullptr;
};

TEST_P(LentThread, GetsHomeWhereverTheTracerDies) {
  const auto maps = read_maps(child_);
  ASSERT_TRUE(maps);
  const auto padding = find_padding(child_, maps->vmas);
  ASSERT_TRUE(padding);
  const CallRoom room{reinterpret_cast<std::uint64_t>(code_), std::vector<std::uint8_t>(call_room_size, 0)};
  const auto target = Target::open(child_);
  ASSERT_TRUE(target);
  std::uint64_t signals = 0;
  unsigned deaths = 0;
  for (bool died = true; died;) {
    ASSERT_TRUE(wait_until([&] { return waits(); })) << "after " << deaths << " deaths";
    const std::uint64_t rounds = shared->rounds;
    const pid_t tracer = ::fork();
    if (tracer == 0) {
      ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ::raise(SIGSTOP);
      ::_exit(lend(child_, *padding, room));
    }
    ::waitpid(tracer, nullptr, 0);
    died = kill_at(tracer, deaths, [&] {
      if (!GetParam().signalled) return;
      ::kill(child_, SIGUSR1);
      ++signals;
    });
    if (died) ++deaths;
    wake();
    ASSERT_TRUE(wait_until([&] { return shared->rounds > rounds; })) << "after " << deaths << " deaths";
    ASSERT_TRUE(wait_until([&] { return shared->signals == signals; }));
    ASSERT_EQ(shared->failures, 0U) << "after " << deaths << " deaths";
    // What computes may not have left the room yet.
    ASSERT_TRUE(wait_until([&] {
      auto stillness = Standstill::begin(*target);
      return stillness && clear_room(*target, *stillness, *padding, nonce) &&
             clear_room(*target, *stillness, room, nonce);
    }));
    ASSERT_EQ(read_bytes(child_, padding->address, call_room_size), padding->original);
  }
  EXPECT_GT(deaths, 20U);
}

INSTANTIATE_TEST_SUITE_P(CallRoom, LentThread, testing::ValuesIn(lives),
                         [](const auto& each) { return std::string(each.param.name); });

/// Even the room that is chosen last has to be there: programs without any other have it.
TEST(Padding, IsNotCode) {
  const auto maps = read_maps(::getpid());
  ASSERT_TRUE(maps);
  const auto padding = find_padding(::getpid(), maps->vmas);
  ASSERT_TRUE(padding);
  const Vma* const vma = find_vma(maps->vmas, padding->address);
  ASSERT_NE(vma, nullptr);
  EXPECT_TRUE(vma->executable);
  EXPECT_LE(padding->address + call_room_size, vma->end);
  std::vector<Vma> kernel_only;
  for (const Vma& each : maps->vmas)
    if (each.name == "[vdso]") kernel_only.push_back(each);
  ASSERT_EQ(kernel_only.size(), 1U);
  const auto last = find_padding(::getpid(), kernel_only);
  if (last) {
    EXPECT_TRUE(kernel_only.front().range().contains(last->address));
  }
}

}  // namespace
}  // namespace whomap
