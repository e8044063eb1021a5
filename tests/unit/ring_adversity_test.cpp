// SPDX-License-Identifier: Apache-2.0
// Recording while threads, signals, forks and odd stacks come in between. The trap flag makes a signal arrive
// before every single instruction of the stub, so that no moment is left out.
#include <sys/wait.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "ring_support.h"

namespace whomap::test {
namespace {

constexpr std::uint64_t trap_flag = 0x100, always_set = 0x202;

/// Calls mmap through a stub and does something before one of its instructions.
class SingleStep {
 public:
  using Deed = std::function<void()>;

  SingleStep(const RingInProcess& target, Deed deed) {
    target_ = &target;
    deed_ = std::move(deed);
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    EXPECT_EQ(::sigaction(SIGTRAP, &action, &old_), 0);
  }
  ~SingleStep() { ::sigaction(SIGTRAP, &old_, nullptr); }

  /// Does the deed before instruction `at`, counted from 1 as they are executed. False, and not done, when it
  /// took fewer. `result`: of the mmap of a page.
  static bool run(int at, std::uint64_t& result) {
    at_ = at;
    instruction_ = 0;
    RecordedCall call;
    call.rax = SYS_mmap;
    call.rsi = 4096;
    call.rdx = PROT_READ;
    call.r10 = MAP_PRIVATE | MAP_ANONYMOUS;
    call.r8 = static_cast<std::uint64_t>(-1);
    call.code = target_->entry(SYS_mmap);
    call.flags = always_set | trap_flag;
    whomap_test_call(&call);
    result = call.rax;
    return instruction_ >= at;
  }

 private:
  static void on_trap(int, siginfo_t*, void* context) {
    auto& interrupted = *static_cast<ucontext_t*>(context);
    if (!target_->in_code(static_cast<std::uint64_t>(interrupted.uc_mcontext.gregs[REG_RIP]))) return;
    if (++instruction_ != at_) return;
    interrupted.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(trap_flag);
    deed_();
  }

  struct sigaction old_ {};
  static inline const RingInProcess* target_;
  static inline Deed deed_;
  static inline int at_, instruction_;
};

bool is_mapped_page(std::uint64_t result) {
  return result < 0x8000'0000'0000U && result % 4096 == 0 &&
         ::munmap(reinterpret_cast<void*>(result), 4096) == 0;
}

constexpr RingOptions small_ring{.slot_count = 16, .stack_bytes = 256, .range_capacity = 1000};

TEST(RingAdversity, AHandlerThatMapsMemoryAtEveryInstruction) {
  RingInProcess target(small_ring);
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  std::uint64_t outer = 0, inner = 0;
  SingleStep step(target, [&] { inner = target.map_memory(4096, 1); });
  int at = 1;
  for (; SingleStep::run(at, outer); ++at) {
    const auto captures = all(reader);
    ASSERT_EQ(captures.size(), 2U) << at;
    EXPECT_NE(outer, inner);
    for (const RingCapture& capture : captures) {
      const CallEvent& event = capture.capture.event;
      EXPECT_EQ(event.result, event.arguments[5] == 0 ? outer : inner);
      EXPECT_TRUE(is_mapped_page(event.result));
    }
  }
  EXPECT_GT(at, 100);
  EXPECT_EQ(target.inside(), 0U);
  EXPECT_EQ(target.control().abandoned, 0U);
}

TEST(RingAdversity, AChildForkedAtEveryInstructionLivesAndLeavesTheRingAlone) {
  RingInProcess target({.slot_count = 64, .stack_bytes = 256, .range_capacity = 1000});
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
  bool in_child = false;
  std::vector<std::size_t> changed;
  SingleStep step(target, [&] {
    const std::vector<std::byte> before(target.ring().begin(), target.ring().end());
    const pid_t child = ::fork();
    in_child = child == 0;
    if (in_child) return;
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "forked before instruction " << changed.size() + 1;
    changed.push_back(0);
    for (std::size_t i = 0; i < before.size(); ++i) changed.back() += before[i] != target.ring()[i] ? 1U : 0U;
  });
  std::uint64_t result = 0;
  int at = 1;
  for (; SingleStep::run(at, result); ++at) {
    const bool mapped = is_mapped_page(result);
    if (in_child) ::_exit(mapped && is_mapped_page(target.map_memory(4096)) ? 0 : 1);
    EXPECT_TRUE(mapped);
    EXPECT_EQ(all(reader).size(), 1U) << at;
  }
  EXPECT_GT(at, 100);
  EXPECT_EQ(changed.size(), static_cast<std::size_t>(at) - 1);
  // The slots that children took in the few instructions between asking whether they are armed and taking it.
  EXPECT_EQ(target.inside(), 0U);
  reader.finish(monotonic_ns(), [](RingCapture&) {});
  EXPECT_LE(reader.counts().lost, 8U);
  // Until it asks again whether it is armed, a child goes on with what its parent was doing, in its parent's
  // slot.
  for (const std::size_t bytes : changed) EXPECT_LE(bytes, sizeof(SlotHead) + 64);
  const auto wrote =
      std::count_if(changed.begin(), changed.end(), [](std::size_t bytes) { return bytes != 0; });
  std::printf("children wrote when forked before %d of %d instructions, at most %zu bytes, %d slots taken\n",
              static_cast<int>(wrote), at - 1, *std::max_element(changed.begin(), changed.end()),
              static_cast<int>(reader.counts().lost));
}

sigjmp_buf handler_exit;

enum class Way { returned, jumped_out, too_short };

[[gnu::noinline]] Way leave_by_handler(int at) {
  if (sigsetjmp(handler_exit, 1) != 0) return Way::jumped_out;
  std::uint64_t result = 0;
  return SingleStep::run(at, result) ? Way::returned : Way::too_short;
}

TEST(RingAdversity, AHandlerThatNeverReturnsFromAnyInstruction) {
  RingInProcess target({.slot_count = 1024, .stack_bytes = 256, .range_capacity = 1000});
  RingReader reader = target.reader({.slot_timeout_ns = 1'000'000});
  target.arm(ArmedState::recording);
  SingleStep step(target, [] { ::siglongjmp(handler_exit, 1); });
  std::uint64_t captured = 0, now = monotonic_ns();
  int left = 0;
  while (leave_by_handler(left + 1) == Way::jumped_out) {
    ++left;
    captured += all(reader, now).size();
  }
  captured += all(reader, now).size();
  EXPECT_GT(left, 100);
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

TEST(RingAdversity, AnOwnerThatWakesUpLateGivesItsSlotBack) {
  RingInProcess target(small_ring);
  RingReader reader = target.reader({.slot_timeout_ns = 1'000'000'000});
  target.arm(ArmedState::recording);
  std::uint64_t now = monotonic_ns();
  std::size_t captured = 0, calls = 0;
  const auto poll = [&] { captured += all(reader, now).size(); };
  // The owner stands still while its slot is given up and all others are used several times.
  SingleStep step(target, [&] {
    poll();
    now += 2'000'000'000;
    for (int i = 0; i < 40; ++i, ++calls) {
      if (i % 8 == 0) poll();
      target.call(SYS_getppid);
    }
    poll();
  });
  std::uint64_t result = 0;
  for (int at = 1; SingleStep::run(at, result); ++at) {
    ++calls;
    EXPECT_TRUE(is_mapped_page(result));
    poll();
  }
  ++calls;
  poll();
  const RingCounts counts = reader.counts();
  EXPECT_GT(counts.lost, 10U);
  EXPECT_EQ(counts.recovered, counts.lost);
  EXPECT_EQ(counts.dropped, 0U);
  EXPECT_EQ(counts.damaged, 0U);
  EXPECT_EQ(captured + counts.lost, calls);
  EXPECT_EQ(target.inside(), 0U);
}

TEST(RingAdversity, DisarmedAtEveryInstructionNothingIsHandedOverHalf) {
  RingInProcess target(small_ring);
  RingReader reader = target.reader();
  SingleStep step(target, [&] { target.arm(ArmedState::off); });
  std::uint64_t result = 0, captured = 0;
  const auto one_round = [&](int at) {
    target.arm(ArmedState::recording);
    const bool reached = SingleStep::run(at, result);
    EXPECT_TRUE(is_mapped_page(result));
    EXPECT_EQ(target.inside(), 0U);
    captured += reader.finish(monotonic_ns(), [](RingCapture&) {});
    reader.reclaim_given_up();
    return reached;
  };
  for (int at = 1; one_round(at);) ++at;
  EXPECT_EQ(target.head().claims - 1, captured + reader.counts().lost);
  EXPECT_GT(captured, 0U);
}

TEST(RingAdversity, FinishingCompletesWhatIsUnderWay) {
  RingInProcess target(small_ring);
  RingReader reader = target.reader();
  SingleStep step(target, [&] { target.arm(ArmedState::finishing); });
  std::uint64_t result = 0;
  int first_recorded = 0;
  for (int at = 1;; ++at) {
    target.arm(ArmedState::recording);
    if (!SingleStep::run(at, result)) break;
    EXPECT_TRUE(is_mapped_page(result));
    const std::size_t recorded = all(reader).size();
    if (first_recorded == 0 && recorded == 1) first_recorded = at;
    EXPECT_EQ(recorded, first_recorded == 0 ? 0U : 1U) << at;
  }
  // The stub asks whether it is armed among its first instructions, after at most seven of padding.
  EXPECT_GT(first_recorded, 3);
  EXPECT_LT(first_recorded, 15);
  EXPECT_EQ(target.control().unarmed_returns, 0U);
}

TEST(RingAdversity, AVforkChildsCallsAreItsParentsMemory) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
  const EdgeStack stack;
  const RingCapture capture = call_on(target, reader, stack.top() - 4);
  EXPECT_EQ(capture.stack_end, StackEnd::unaligned);
  EXPECT_TRUE(capture.capture.stack.bytes.empty());
}

TEST(RingAdversity, AThreadThatUnmapsTheStackItStandsOn) {
  RingInProcess target;
  RingReader reader = target.reader();
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
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
  target.arm(ArmedState::recording);
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
