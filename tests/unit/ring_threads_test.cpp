// SPDX-License-Identifier: Apache-2.0
// Many threads and signals at full speed: every call is recorded as what it was, or counted.
#include <pthread.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <latch>
#include <thread>

#include "ring_support.h"

namespace whomap::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t pairs_per_thread = 5'000;
#else
constexpr std::size_t pairs_per_thread = 62'500;
#endif
constexpr std::size_t threads = 8;

/// What one thread did, by tag.
struct Log {
  std::vector<std::uint64_t> mapped;  ///< results of its mmaps
  std::uint64_t base = 0;
};

constexpr std::uint64_t tag_of(std::size_t thread, std::size_t call) {
  return (thread + 1) << 32U | call;
}

TEST(RingThreads, AMillionCallsOfEightThreadsAreEachTheirOwn) {
  RingInProcess target({.slot_count = 4096, .stack_bytes = 512, .range_capacity = 1000});
  std::vector<Log> logs(threads);
  std::latch ready(threads), published(1);
  std::atomic<std::size_t> running = threads;
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      logs[t].base = thread_base();
      logs[t].mapped.resize(pairs_per_thread);
      ready.count_down();
      published.wait();
      for (std::size_t i = 0; i < pairs_per_thread; ++i) {
        const std::uint64_t length = 4096 * (1 + i % 3);
        logs[t].mapped[i] = target.map_memory(length, tag_of(t, i));
        if (target.unmap_memory(logs[t].mapped[i], length, tag_of(t, i)) != 0) logs[t].mapped[i] = 0;
      }
      --running;
    });
  ready.wait();
  target.publish_stacks();
  target.arm(ArmedState::recording);
  RingReader reader = target.reader({.thread_of = [&](std::uint64_t base, std::uint64_t) {
    for (std::size_t t = 0; t < threads; ++t)
      if (logs[t].base == base) return static_cast<pid_t>(t + 1);
    return 0;
  }});
  published.count_down();

  struct Seen {
    std::uint64_t tag, result, address, length;
    std::uint64_t enter, exit;
    std::int64_t number;
    pid_t tid;
    StackEnd end;
  };
  std::vector<Seen> seen;
  seen.reserve(2 * threads * pairs_per_thread);
  const auto take = [&](RingCapture& capture) {
    const CallEvent& event = capture.capture.event;
    const bool map = event.number == SYS_mmap;
    seen.push_back({map ? event.arguments[5] >> 12U : event.arguments[2], event.result,
                    map ? event.result : event.arguments[0], event.arguments[1], event.enter_ns,
                    event.exit_ns, event.number, event.tid, capture.stack_end});
  };
  while (running > 0) reader.poll(monotonic_ns(), take);
  for (std::thread& worker : workers) worker.join();
  reader.poll(monotonic_ns(), take);

  const RingCounts counts = reader.counts();
  EXPECT_EQ(counts.captured, seen.size());
  EXPECT_EQ(counts.captured + counts.dropped, 2 * threads * pairs_per_thread);
  EXPECT_EQ(counts.lost + counts.damaged + counts.pending, 0U);
  EXPECT_EQ(target.control().no_place + target.control().unpaired + target.control().abandoned, 0U);
  EXPECT_EQ(target.inside(), 0U);
  std::size_t mispaired = 0, out_of_order = 0;
  std::vector<std::uint64_t> last_exit(threads, 0);
  for (const Seen& call : seen) {
    const std::size_t t = (call.tag >> 32U) - 1, i = call.tag & 0xFFFFFFFFU;
    if (t >= threads || i >= pairs_per_thread || call.address != logs[t].mapped[i] || call.address == 0 ||
        call.length != 4096 * (1 + i % 3) || call.tid != static_cast<pid_t>(t + 1) ||
        call.end == StackEnd::page || (call.number == SYS_munmap && call.result != 0)) {
      ++mispaired;
      continue;
    }
    if (call.enter > call.exit || call.exit - call.enter > 60'000'000'000U) ++out_of_order;
    // Claims are made in the order of the returns of one thread.
    if (call.enter < last_exit[t]) ++out_of_order;
    last_exit[t] = call.exit;
  }
  EXPECT_EQ(mispaired, 0U);
  EXPECT_EQ(out_of_order, 0U);
  std::printf("%llu captured, %llu dropped\n", static_cast<unsigned long long>(counts.captured),
              static_cast<unsigned long long>(counts.dropped));
}

TEST(RingThreads, AFullRingDropsAndCountsExactly) {
  RingInProcess target({.slot_count = 64, .stack_bytes = 512, .range_capacity = 1000});
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  std::vector<std::thread> workers;
  constexpr std::uint64_t calls = 5000;
  for (std::size_t t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (std::uint64_t i = 0; i < calls; ++i) target.call(SYS_getppid);
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(all(reader).size(), 64U);
  EXPECT_EQ(reader.counts().dropped, threads * calls - 64);
  for (int i = 0; i < 64; ++i) target.call(SYS_getppid);
  EXPECT_EQ(all(reader).size(), 64U);
  EXPECT_EQ(reader.counts().dropped, threads * calls - 64);
}

const RingInProcess* signalled;
std::atomic<std::uint64_t> handled, handler_failures;

void map_in_handler(int) {
  const std::uint64_t mapped = signalled->map_memory(8192);
  if (mapped >= 0x8000'0000'0000U || signalled->unmap_memory(mapped, 8192) != 0) ++handler_failures;
  ++handled;
}

/// A timer of this thread's own, every millisecond.
class ThreadTimer {
 public:
  ThreadTimer() {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGALRM;
    event._sigev_un._tid = ::gettid();
    EXPECT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    const itimerspec every{{0, 1'000'000}, {0, 1'000'000}};
    EXPECT_EQ(::timer_settime(timer_, 0, &every, nullptr), 0);
  }
  ~ThreadTimer() { ::timer_delete(timer_); }

 private:
  timer_t timer_{};
};

void calls_under_signals(bool own_stack) {
  RingInProcess target({.slot_count = 4096, .stack_bytes = 512, .range_capacity = 1000});
  RingReader reader = target.reader();
  signalled = &target;
  handled = handler_failures = 0;
  struct sigaction action {
  }, old{};
  action.sa_handler = map_in_handler;
  action.sa_flags = SA_RESTART | (own_stack ? SA_ONSTACK : 0);
  ASSERT_EQ(::sigaction(SIGALRM, &action, &old), 0);
  target.arm(ArmedState::recording);
  constexpr std::uint64_t enough = 500;
  std::atomic<std::uint64_t> calls = 0, failures = 0;
  std::atomic<int> running = 4;
  std::vector<std::thread> workers;
  for (int t = 0; t < 4; ++t)
    workers.emplace_back([&] {
      // The smallest that the kernel accepts, and room for the stub's callers; unknown to the table.
      const std::size_t size = (static_cast<std::size_t>(::sysconf(_SC_MINSIGSTKSZ)) + 8191) / 4096 * 4096;
      void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      const stack_t stack{memory, 0, size}, none{nullptr, SS_DISABLE, 0};
      if (own_stack) {
        EXPECT_EQ(::sigaltstack(&stack, nullptr), 0);
      }
      {
        const ThreadTimer timer;
        while (handled < enough) {
          const std::uint64_t mapped =
              target.call(SYS_mmap, 0, 4 << 20, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, static_cast<std::uint64_t>(-1), 0);
          if (mapped >= 0x8000'0000'0000U || target.unmap_memory(mapped, 4 << 20) != 0) ++failures;
          calls += 2;
        }
      }
      if (own_stack) ::sigaltstack(&none, nullptr);
      ::munmap(memory, size);
      --running;
    });
  std::uint64_t captured = 0;
  while (running > 0) captured += reader.poll(monotonic_ns(), [](RingCapture&) {});
  for (std::thread& worker : workers) worker.join();
  captured += reader.poll(monotonic_ns(), [](RingCapture&) {});
  EXPECT_EQ(failures, 0U);
  EXPECT_EQ(handler_failures, 0U);
  EXPECT_EQ(captured + reader.counts().dropped, calls + 2 * handled);
  EXPECT_EQ(reader.counts().lost, 0U);
  EXPECT_EQ(target.inside(), 0U);
  ::sigaction(SIGALRM, &old, nullptr);
}

TEST(RingThreads, HandlersThatMapEveryMillisecond) {
  calls_under_signals(false);
}

TEST(RingThreads, HandlersOnSmallStacksOfTheirOwn) {
  calls_under_signals(true);
}

int restart_pipe[2];
std::uint64_t restart_mapped;

/// Lets the read end only once it was seen to be interrupted: the saved pc is then the stub's own syscall
/// instruction.
void map_and_write(int, siginfo_t*, void* context) {
  const auto pc = static_cast<std::uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  constexpr std::array<std::uint8_t, 2> system_call{0x0F, 0x05};
  if (restart_mapped != 0 || !signalled->in_code(pc) ||
      std::memcmp(reinterpret_cast<void*>(pc), system_call.data(), system_call.size()) != 0)
    return;
  restart_mapped = signalled->map_memory(4096);
  if (::write(restart_pipe[1], "x", 1) != 1) restart_mapped = 1;
}

TEST(RingThreads, ARestartedCallIsOneCall) {
  RingInProcess target;
  RingReader reader = target.reader();
  signalled = &target;
  restart_mapped = 0;
  ASSERT_EQ(::pipe(restart_pipe), 0);
  struct sigaction action {
  }, old{};
  action.sa_sigaction = map_and_write;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGALRM, &action, &old), 0);
  target.arm(ArmedState::recording);
  char byte = 0;
  {
    const ThreadTimer timer;
    EXPECT_EQ(target.call(SYS_read, static_cast<std::uint64_t>(restart_pipe[0]),
                          reinterpret_cast<std::uint64_t>(&byte), 1),
              1U);
  }
  EXPECT_EQ(byte, 'x');
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 2U);
  EXPECT_EQ(captures[0].capture.event.number, SYS_mmap);
  EXPECT_EQ(captures[0].capture.event.result, restart_mapped);
  EXPECT_EQ(captures[1].capture.event.number, SYS_read);
  EXPECT_EQ(captures[1].capture.event.result, 1U);
  EXPECT_LT(captures[1].capture.event.enter_ns, captures[0].capture.event.enter_ns);
  EXPECT_EQ(target.control().abandoned, 0U);
  ::munmap(reinterpret_cast<void*>(restart_mapped), 4096);
  ::close(restart_pipe[0]);
  ::close(restart_pipe[1]);
  ::sigaction(SIGALRM, &old, nullptr);
}

}  // namespace
}  // namespace whomap::test
