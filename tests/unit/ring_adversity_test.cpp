// SPDX-License-Identifier: Apache-2.0
// Recording while threads, signals, forks and odd stacks come in between. The trap flag makes a signal arrive
// before every single instruction of the stub, so that no moment is left out.
#include <sys/wait.h>

#include <csetjmp>
#include <csignal>
#include <functional>
#include <thread>

#include "ring_support.h"

namespace whomap::test {
namespace {

constexpr std::uint64_t trap_flag = 0x100, always_set = 0x202;

/// Runs `at` before every instruction of the stub that a call of `step` runs.
class SingleStep {
 public:
  using Handler = std::function<void(int instruction, ucontext_t&)>;

  SingleStep(const RingInProcess& target, Handler at) {
    target_ = &target;
    handler_ = std::move(at);
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    EXPECT_EQ(::sigaction(SIGTRAP, &action, &old_), 0);
  }
  ~SingleStep() { ::sigaction(SIGTRAP, &old_, nullptr); }

  /// The result of an mmap of a page; returns how many of the stub's instructions it took.
  static int run(std::uint64_t& result, std::uint64_t code) {
    RecordedCall call;
    call.rax = SYS_mmap;
    call.rsi = 4096;
    call.rdx = PROT_READ;
    call.r10 = MAP_PRIVATE | MAP_ANONYMOUS;
    call.r8 = static_cast<std::uint64_t>(-1);
    call.code = code;
    call.flags = always_set | trap_flag;
    instruction_ = 0;
    whomap_test_call(&call);
    result = call.rax;
    return instruction_;
  }

 private:
  static void on_trap(int, siginfo_t*, void* context) {
    auto& interrupted = *static_cast<ucontext_t*>(context);
    if (target_->in_code(static_cast<std::uint64_t>(interrupted.uc_mcontext.gregs[REG_RIP])))
      handler_(++instruction_, interrupted);
  }

  struct sigaction old_ {};
  static inline const RingInProcess* target_;
  static inline Handler handler_;
  static inline int instruction_;
};

TEST(RingAdversity, AHandlerThatMapsMemoryAtEveryInstruction) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  std::vector<std::uint64_t> results;
  int nested = 0;
  SingleStep step(target, [&](int, ucontext_t&) {
    ++nested;
    results.push_back(target.map_memory(4096, 1));
  });
  std::uint64_t outer = 0;
  const int instructions = SingleStep::run(outer, target.entry(SYS_mmap));
  EXPECT_GT(instructions, 100);
  EXPECT_EQ(nested, instructions);
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), static_cast<std::size_t>(nested) + 1);
  std::size_t next = 0;
  int outers = 0;
  for (const RingCapture& capture : captures) {
    const CallEvent& event = capture.capture.event;
    if (event.arguments[5] == 0) {
      EXPECT_EQ(event.result, outer);
      ++outers;
    } else {
      EXPECT_EQ(event.result, results[next++]);
    }
    ::munmap(reinterpret_cast<void*>(event.result), 4096);
  }
  EXPECT_EQ(outers, 1);
  EXPECT_EQ(target.inside(), 0U);
  EXPECT_EQ(target.control().abandoned, 0U);
}

/// What a child that was forked inside the stub, and goes on there, changes in the ring.
TEST(RingAdversity, AChildForkedAtEveryInstructionLivesAndLeavesTheRingAlone) {
  RingInProcess target({.slot_count = 16, .stack_bytes = 1024, .range_capacity = 1000});
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  int forks = 0, fork_at = 0;
  bool in_child = false;
  pid_t child = 0;
  std::vector<int> wrote;
  const auto changed_bytes = [&](const std::vector<std::byte>& before) {
    std::size_t changed = 0;
    for (std::size_t i = 0; i < before.size(); ++i) changed += before[i] != target.ring()[i] ? 1U : 0U;
    return changed;
  };
  SingleStep step(target, [&](int instruction, ucontext_t& context) {
    if (instruction != fork_at) return;
    ++forks;
    const std::vector<std::byte> before(target.ring().begin(), target.ring().end());
    child = ::fork();
    if (child == 0) {
      in_child = true;
      context.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(trap_flag);
      return;
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "instruction " << instruction << " " << status;
    const std::size_t changed = changed_bytes(before);
    if (changed != 0) wrote.push_back(instruction);
    // Eight words of the slot that its parent is writing at that moment, or one word of the ring's head.
    EXPECT_LE(changed, 64U) << "instruction " << instruction;
  });
  int instructions = 0;
  std::uint64_t result = 0;
  for (fork_at = 1; fork_at <= std::max(instructions, 1); ++fork_at) {
    instructions = SingleStep::run(result, target.entry(SYS_mmap));
    const bool mapped = result < 0x8000'0000'0000U && result % 4096 == 0 &&
                        ::munmap(reinterpret_cast<void*>(result), 4096) == 0;
    if (in_child) ::_exit(mapped && target.map_memory(4096) < 0x8000'0000'0000U ? 0 : 1);
    EXPECT_TRUE(mapped);
    all(reader);
  }
  EXPECT_EQ(forks, instructions);
  RecordProperty("instructions", instructions);
  RecordProperty("instructions_after_which_a_child_wrote", static_cast<int>(wrote.size()));
  std::printf("a child forked by a handler wrote after %zu of %d instructions\n", wrote.size(), instructions);
}

sigjmp_buf handler_exit;

/// Whether the call came back, rather than its handler jumping to handler_exit.
[[gnu::noinline]] bool comes_back(std::uint64_t code) {
  if (sigsetjmp(handler_exit, 1) != 0) return false;
  std::uint64_t result = 0;
  SingleStep::run(result, code);
  return true;
}

TEST(RingAdversity, AHandlerThatNeverReturnsFromAnyInstruction) {
  RingInProcess target({.slot_count = 1024, .stack_bytes = 256, .range_capacity = 1000});
  RingReader reader = target.reader({.slot_timeout_ns = 1'000'000});
  target.arm(Armed::recording);
  int leave_at = 0;
  SingleStep step(target, [&](int instruction, ucontext_t&) {
    if (instruction == leave_at) ::siglongjmp(handler_exit, 1);
  });
  std::uint64_t left = 0, captured = 0, now = monotonic_ns();
  while (true) {
    ++leave_at;
    const bool back = comes_back(target.entry(SYS_mmap));
    captured += all(reader, now).size();
    if (back) break;
    ++left;
  }
  EXPECT_GT(left, 100U);
  // Those that left while they wrote are given up, each once; none is handed over half.
  now += 10'000'000;
  captured = captured + all(reader, now).size();
  const RingCounts counts = reader.counts();
  EXPECT_GT(counts.lost, 0U);
  EXPECT_EQ(counts.recovered, 0U);
  EXPECT_EQ(counts.pending, 0U);
  EXPECT_EQ(counts.damaged, 0U);
  EXPECT_EQ(counts.captured, captured);
  EXPECT_EQ(target.head().claims - 1, counts.captured + counts.lost);
  EXPECT_GT(target.inside(), counts.lost);
  // The ring works on with what it has left, and with all of it once nobody can be inside.
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 500; ++j) target.call(SYS_getppid);
    EXPECT_EQ(all(reader, now).size(), 500U);
  }
  EXPECT_EQ(reader.counts().dropped, 0U);
  for (int i = 0; i < 1024; ++i) target.call(SYS_getppid);
  EXPECT_EQ(all(reader, now).size(), 1024U - counts.lost);
  EXPECT_EQ(reader.counts().dropped, counts.lost);
  reader.reclaim_given_up();
  for (int i = 0; i < 1024; ++i) target.call(SYS_getppid);
  EXPECT_EQ(all(reader, now).size(), 1024U);
  EXPECT_EQ(reader.counts().recovered, counts.lost);
}

/// The reader gives a slot up while its owner stands still; then the owner goes on.
TEST(RingAdversity, AnOwnerThatWakesUpLateGivesItsSlotBack) {
  RingInProcess target({.slot_count = 16, .stack_bytes = 1024, .range_capacity = 1000});
  RingReader reader = target.reader({.slot_timeout_ns = 1'000'000'000});
  target.arm(Armed::recording);
  std::uint64_t now = monotonic_ns();
  int sleep_at = 0;
  std::size_t captured = 0, round_trips = 0;
  const auto poll = [&] { captured += all(reader, now).size(); };
  SingleStep step(target, [&](int instruction, ucontext_t&) {
    if (instruction != sleep_at) return;
    poll();
    now += 2'000'000'000;
    poll();
    // Full rounds past it.
    for (int i = 0; i < 40; ++i) {
      target.call(SYS_getppid);
      if (i % 8 == 7) poll();
    }
    poll();
    ++round_trips;
  });
  int instructions = 1;
  std::uint64_t result = 0, calls = 0;
  for (sleep_at = 1; sleep_at <= instructions; ++sleep_at) {
    instructions = SingleStep::run(result, target.entry(SYS_mmap));
    ++calls;
    poll();
  }
  const RingCounts counts = reader.counts();
  EXPECT_GT(counts.lost, 10U);
  EXPECT_EQ(counts.recovered, counts.lost);
  EXPECT_EQ(counts.dropped, 0U);
  EXPECT_EQ(counts.damaged, 0U);
  EXPECT_EQ(captured + counts.lost, calls + 40 * round_trips);
  EXPECT_EQ(target.inside(), 0U);
}

TEST(RingAdversity, DisarmedAtEveryInstructionNothingIsHalfWritten) {
  RingInProcess target({.slot_count = 16, .stack_bytes = 1024, .range_capacity = 1000});
  RingReader reader = target.reader();
  int disarm_at = 0;
  SingleStep step(target, [&](int instruction, ucontext_t&) {
    if (instruction == disarm_at) target.arm(Armed::off);
  });
  int instructions = 1;
  std::uint64_t result = 0, captured = 0, lost = 0;
  for (disarm_at = 1; disarm_at <= instructions; ++disarm_at) {
    target.arm(Armed::recording);
    instructions = std::max(instructions, SingleStep::run(result, target.entry(SYS_mmap)));
    EXPECT_EQ(target.inside(), 0U);
    EXPECT_EQ(::munmap(reinterpret_cast<void*>(result), 4096), 0);
    const std::uint64_t lost_before = reader.counts().lost;
    captured += reader.finish(monotonic_ns(), [](RingCapture&) {});
    lost += reader.counts().lost - lost_before;
    reader.reclaim_given_up();
  }
  EXPECT_EQ(target.head().claims - 1, captured + lost);
  EXPECT_GT(captured, 0U);
}

TEST(RingAdversity, FinishingCompletesWhatIsUnderWay) {
  RingInProcess target;
  RingReader reader = target.reader();
  int finish_at = 0;
  SingleStep step(target, [&](int instruction, ucontext_t&) {
    if (instruction == finish_at) target.arm(Armed::finishing);
  });
  int instructions = 1;
  std::uint64_t result = 0;
  for (finish_at = 1; finish_at <= instructions; ++finish_at) {
    target.arm(Armed::recording);
    instructions = std::max(instructions, SingleStep::run(result, target.entry(SYS_mmap)));
    ::munmap(reinterpret_cast<void*>(result), 4096);
    // The control page is asked by the fourth instruction.
    EXPECT_EQ(all(reader).size(), finish_at <= 4 ? 0U : 1U) << finish_at;
  }
  EXPECT_EQ(target.control().unarmed_returns, 0U);
}

TEST(RingAdversity, AVforkChildsCallsAreItsParentsMemory) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  static std::uint64_t mapped;
  const pid_t child = ::vfork();
  if (child == 0) {
    mapped = target.map_memory(4096, 5);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 1U);
  EXPECT_EQ(captures[0].capture.event.result, mapped);
  EXPECT_EQ(::munmap(reinterpret_cast<void*>(mapped), 4096), 0);
}

TEST(RingAdversity, AForkedChildsOwnCallsAreNotRecorded) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i)
      if (target.unmap_memory(target.map_memory(4096), 4096) != 0) ::_exit(1);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all(reader).empty());
  EXPECT_EQ(target.head().claims, 1U);
}

/// A stack of its own right below memory that cannot be read.
class EdgeStack {
 public:
  EdgeStack() {
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(::mprotect(base_ + size, 4096, PROT_NONE), 0);
  }
  ~EdgeStack() { ::munmap(base_, size + 4096); }
  std::uint64_t top() const { return reinterpret_cast<std::uint64_t>(base_ + size); }
  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(base_); }
  static constexpr std::size_t size = 16 * 4096;

 private:
  std::byte* base_ = nullptr;
};

RingCapture call_on(const RingInProcess& target, RingReader& reader, std::uint64_t stack,
                    std::int64_t number = SYS_getppid) {
  RecordedCall call;
  call.rax = static_cast<std::uint64_t>(number);
  call.code = target.entry(number);
  call.stack = stack;
  whomap_test_call(&call);
  auto captures = all(reader);
  EXPECT_EQ(captures.size(), 1U);
  return captures.empty() ? RingCapture{} : captures[0];
}

TEST(RingAdversity, AnUnknownStackIsCopiedToTheEndOfItsPage) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  const EdgeStack stack;  // not in the table
  for (const std::uint64_t depth : {0U, 8U, 64U, 4096U - 16U, 4096U, 10000U}) {
    const std::uint64_t rsp = stack.top() - depth - 16;
    const RingCapture capture = call_on(target, reader, stack.top() - depth);
    EXPECT_EQ(capture.stack_end, StackEnd::page);
    EXPECT_EQ(capture.capture.registers.rsp, rsp);
    EXPECT_EQ(capture.capture.stack.bytes.size(), (4096 - rsp % 4096) % 4096) << depth;
  }
  // Known now, but not as this thread's: its descriptor is not there.
  target.publish_stacks();
  EXPECT_EQ(call_on(target, reader, stack.top() - 5000).stack_end, StackEnd::page);
}

TEST(RingAdversity, AMisalignedStackIsNotCopied) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  const EdgeStack stack;
  const RingCapture capture = call_on(target, reader, stack.top() - 4);
  EXPECT_EQ(capture.stack_end, StackEnd::unaligned);
  EXPECT_TRUE(capture.capture.stack.bytes.empty());
}

TEST(RingAdversity, AThreadThatUnmapsTheStackItStandsOn) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  auto* base = static_cast<std::byte*>(
      ::mmap(nullptr, EdgeStack::size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  target.publish_stacks();
  RecordedCall call;
  call.rax = SYS_munmap;
  call.rdi = reinterpret_cast<std::uint64_t>(base);
  call.rsi = EdgeStack::size;
  call.rbx = reinterpret_cast<std::uint64_t>(&call);
  call.code = target.gone_stack_entry();
  call.stack = reinterpret_cast<std::uint64_t>(base) + EdgeStack::size - 64;
  whomap_test_call(&call);
  EXPECT_EQ(call.rax, 0U);
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 1U);
  EXPECT_EQ(captures[0].stack_end, StackEnd::own_range);
  EXPECT_TRUE(captures[0].capture.stack.bytes.empty());
}

TEST(RingAdversity, MemoryAboveThatTheCallTakesAwayIsNotCopied) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  alignas(4096) std::array<std::byte, 8 * 4096> stack{};
  const auto base = reinterpret_cast<std::uint64_t>(stack.data());
  RecordedCall call;
  call.rax = SYS_mprotect;
  call.rdi = base + 2 * 4096;
  call.rsi = 4096;
  call.rdx = PROT_NONE;
  call.code = target.entry(SYS_mprotect);
  call.stack = base + 2 * 4096 - 48;
  whomap_test_call(&call);
  EXPECT_EQ(::mprotect(stack.data() + 2 * 4096, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(call.rax, 0U);
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 1U);
  EXPECT_EQ(captures[0].stack_end, StackEnd::own_range);
  EXPECT_EQ(captures[0].capture.stack.bytes.size(), 64U);
}

TEST(RingAdversity, AThreadsStackEndsAtItsDescriptor) {
  RingInProcess target({.slot_count = 64, .stack_bytes = 1 << 20, .range_capacity = 8192});
  RingReader reader = target.reader();
  target.arm(Armed::recording);
  std::uint64_t base = 0;
  std::thread([&] {
    base = thread_base();
    // The thread's stack is new: the table must name it.
    StackTableWriter(target.ring(), target.shape).publish(stack_ranges(read_maps(::getpid())->vmas, 0));
    target.call(SYS_getppid);
  }).join();
  const auto captures = all(reader);
  ASSERT_EQ(captures.size(), 1U);
  EXPECT_EQ(captures[0].thread_base, base);
  EXPECT_EQ(captures[0].stack_end, StackEnd::whole);
  EXPECT_EQ(captures[0].capture.registers.rsp + captures[0].capture.stack.bytes.size(), base);
}

TEST(RingAdversity, TheRightOneOfThousandsOfRangesIsFoundWhileTheyChange) {
  RingInProcess target;
  RingReader reader = target.reader();
  alignas(64) std::array<std::uint64_t, 1024> stack{};
  const auto base = reinterpret_cast<std::uint64_t>(stack.data());
  target.arm(Armed::recording);
  for (const std::size_t below : {0U, 1U, 2U, 3U, 500U, 5000U})
    for (const std::size_t above : {0U, 1U, 2U, 700U, 3000U}) {
      std::vector<StackRange> ranges;
      for (std::size_t i = 0; i < below; ++i) ranges.push_back({4096 * (i + 1), 4096 * (i + 1) + 2048});
      ranges.push_back({base, base + sizeof stack});
      for (std::size_t i = 0; i < above; ++i)
        ranges.push_back({base + sizeof stack + 64 * i, base + sizeof stack + 64 * i + 64});
      StackTableWriter(target.ring(), target.shape).publish(ranges);
      const RingCapture capture = call_on(target, reader, base + 6144);
      EXPECT_EQ(capture.stack_end, StackEnd::whole) << below << " " << above;
      EXPECT_EQ(capture.capture.stack.bytes.size(), 2048U + 16U);
    }
  std::atomic<bool> over = false;
  std::thread writer([&] {
    StackTableWriter table(target.ring(), target.shape);
    std::vector<StackRange> ranges;
    for (std::size_t round = 0; !over; ++round) {
      ranges.clear();
      for (std::size_t i = 0; i < round % 2000; ++i)
        ranges.push_back({4096 * (i + 1), 4096 * (i + 1) + 2048});
      ranges.push_back({base, base + sizeof stack});
      table.publish(ranges);
    }
  });
  int whole = 0;
  for (int i = 0; i < 20'000; ++i) {
    const RingCapture capture = call_on(target, reader, base + 6144);
    if (capture.stack_end == StackEnd::whole) {
      ++whole;
      ASSERT_EQ(capture.capture.stack.bytes.size(), 2048U + 16U);
    } else {
      ASSERT_EQ(capture.stack_end, StackEnd::page);
    }
  }
  over = true;
  writer.join();
  EXPECT_GT(whole, 10'000);
}

}  // namespace
}  // namespace whomap::test
