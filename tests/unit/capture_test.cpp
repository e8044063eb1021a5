// SPDX-License-Identifier: Apache-2.0
// Pairing of calls and returns, played by threads that do not exist, and the channel.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <map>
#include <thread>

#include "core/capture/channel.h"
#include "core/capture/hit_recorder.h"

namespace whomap {
namespace {

constexpr std::int64_t mmap_number = 9;
constexpr std::int64_t getppid_number = 110;

class PlayedThreads : public StoppedThreads {
 public:
  bool registers(pid_t tid, user_regs_struct& into) override {
    const auto found = now.find(tid);
    if (found == now.end()) return false;
    into = found->second;
    return true;
  }
  std::size_t memory(pid_t, std::uint64_t address, std::span<std::byte> into) override {
    asked_address = address;
    const std::size_t count = std::min<std::size_t>(into.size(), 24);
    std::fill_n(into.begin(), count, std::byte{0x5A});
    return count;
  }
  std::map<pid_t, user_regs_struct> now;
  std::uint64_t asked_address = 0;
};

Plan plan_with_both_kinds() {
  Plan plan;
  Site variable;
  variable.id = 0;
  variable.watch = WatchKind::paired_breakpoints;
  variable.numbers = {mmap_number, 11};
  variable.return_address = 0x1019;
  Site constant;
  constant.id = 1;
  constant.watch = WatchKind::return_breakpoint;
  constant.kind = NumberKind::constant;
  constant.number = mmap_number;
  constant.numbers = {mmap_number};
  constant.return_address = 0x2009;
  plan.sites = {variable, constant};
  return plan;
}

class Pairing : public ::testing::Test {
 protected:
  /// `tid` stands at the syscall instruction of site 0.
  void start(pid_t tid, std::int64_t number, std::uint64_t stack, std::uint64_t length) {
    user_regs_struct r{};
    r.rax = static_cast<std::uint64_t>(number);
    r.rsi = length;
    r.rsp = stack;
    threads.now[tid] = r;
    recorder.at_syscall(0, tid);
  }
  void finish(pid_t tid, std::uint64_t stack, std::uint64_t result, std::uint32_t site = 0) {
    user_regs_struct r{};
    r.rax = result;
    r.rsp = stack;
    r.rbx = 0xB;
    threads.now[tid] = r;
    recorder.at_return(site, tid);
  }

  PlayedThreads threads;
  std::vector<Capture> captured;
  bool taken = true;
  HitRecorder recorder{
      plan_with_both_kinds(), 4096, threads,
      [this](const CallEvent& event, const Registers& registers, const StackView& stack) {
        if (taken)
          captured.push_back({event, registers, {stack.address, {stack.bytes.begin(), stack.bytes.end()}}});
        return taken;
      }};
};

TEST_F(Pairing, AReturnBelongsToTheThreadThatMadeTheCall) {
  start(1, mmap_number, 0x7000, 111);
  start(2, mmap_number, 0x8000, 222);
  finish(2, 0x8000, 0xB000);
  finish(1, 0x7000, 0xA000);
  ASSERT_EQ(captured.size(), 2U);
  EXPECT_EQ(captured[0].event.tid, 2);
  EXPECT_EQ(captured[0].event.arguments[1], 222U);
  EXPECT_EQ(captured[0].event.result, 0xB000U);
  EXPECT_EQ(captured[1].event.arguments[1], 111U);
  EXPECT_EQ(captured[1].event.result, 0xA000U);
  EXPECT_LE(captured[1].event.enter_ns, captured[1].event.exit_ns);
  EXPECT_EQ(recorder.counts().unpaired, 0U);
}

TEST_F(Pairing, OtherThreadsAndOtherNumbersPassUnrecorded) {
  start(1, mmap_number, 0x7000, 111);
  finish(2, 0x7000, 0xDEAD);
  start(2, getppid_number, 0x8000, 0);
  finish(2, 0x8000, 77);
  EXPECT_TRUE(captured.empty());
  finish(1, 0x7000, 0xA000);
  EXPECT_EQ(captured.size(), 1U);
  EXPECT_EQ(recorder.counts().hits, 5U);
}

TEST_F(Pairing, ASignalHandlerMapsMemoryInsideACall) {
  start(1, mmap_number, 0x7000, 111);
  start(1, mmap_number, 0x6000, 222);
  finish(1, 0x6000, 0xB000);
  finish(1, 0x7000, 0xA000);
  ASSERT_EQ(captured.size(), 2U);
  EXPECT_EQ(captured[0].event.arguments[1], 222U);
  EXPECT_EQ(captured[1].event.arguments[1], 111U);
}

TEST_F(Pairing, ACallThatNeverReturnedIsNotGivenTheNextResult) {
  start(1, mmap_number, 0x7000, 111);   // its return is never seen
  start(1, getppid_number, 0x7000, 0);  // another call at the same depth
  finish(1, 0x7000, 77);
  EXPECT_TRUE(captured.empty());
  EXPECT_EQ(recorder.counts().unpaired, 1U);
}

TEST_F(Pairing, LongjmpOutOfAHandlerDropsTheDeeperCall) {
  start(1, mmap_number, 0x7000, 111);
  start(1, mmap_number, 0x6000, 222);
  finish(1, 0x7000, 0xA000);
  ASSERT_EQ(captured.size(), 1U);
  EXPECT_EQ(captured[0].event.arguments[1], 111U);
  EXPECT_EQ(recorder.counts().unpaired, 1U);
}

TEST_F(Pairing, AConstantSiteNeedsNoPair) {
  finish(3, 0x9000, 0xC000, 1);
  ASSERT_EQ(captured.size(), 1U);
  EXPECT_EQ(captured[0].event.number, mmap_number);
  EXPECT_EQ(captured[0].registers.rip, 0x2009U);
  EXPECT_EQ(captured[0].registers.rbx, 0xBU);
  EXPECT_EQ(captured[0].stack.address, 0x9000U);
  EXPECT_EQ(captured[0].stack.bytes.size(), 24U);
}

TEST_F(Pairing, WhatIsNotTakenOrNotReadableIsCounted) {
  taken = false;
  finish(3, 0x9000, 0xC000, 1);
  recorder.at_return(1, 99);
  EXPECT_EQ(recorder.counts().lost, 1U);
  EXPECT_EQ(recorder.counts().unreadable, 1U);
  EXPECT_EQ(recorder.counts().captured, 0U);
}

TEST_F(Pairing, CallsUnderWayAtTheEndCountAsUnpaired) {
  start(1, mmap_number, 0x7000, 111);
  EXPECT_EQ(recorder.counts().unpaired, 1U);
}

TEST(Channel, CarriesEveryMessageAndTheEnd) {
  auto ends = make_channel();
  ASSERT_TRUE(ends);
  TracerChannel tracer(std::move(ends->tracer));
  CollectorChannel collector(std::move(ends->collector));
  collector.say_ready();
  EXPECT_TRUE(tracer.wait_for_ready());

  const std::vector<std::byte> stack(50'000, std::byte{7});
  const std::vector<std::byte> other(9'000, std::byte{8});
  CallEvent event;
  event.tid = 42;
  event.result = 0xABCD;
  EXPECT_TRUE(tracer.send_armed());
  EXPECT_TRUE(
      tracer.send_capture(event, Registers{.rsp = 0x1000}, {0x1000, stack, 0xC000001000, other}, 100));
  EXPECT_TRUE(tracer.send_finished({.hits = 3}));
  auto message = collector.receive();
  ASSERT_TRUE(message && *message && std::holds_alternative<Armed>(**message));
  message = collector.receive();
  ASSERT_TRUE(message && *message && std::holds_alternative<Capture>(**message));
  const auto& capture = std::get<Capture>(**message);
  EXPECT_EQ(capture.event.tid, 42);
  EXPECT_EQ(capture.registers.rsp, 0x1000U);
  EXPECT_EQ(capture.stack.bytes, stack);
  EXPECT_EQ(capture.stack.other_frame, 0xC000001000U);
  EXPECT_EQ(capture.stack.other_bytes, other);
  message = collector.receive();
  ASSERT_TRUE(message && *message && std::holds_alternative<Finished>(**message));
  EXPECT_EQ(std::get<Finished>(**message).counts.hits, 3U);

  collector.ask_for_end();
  tracer.wait_for_end();
}

TEST(Channel, AReaderThatHangsIsNotWaitedForLong) {
  auto ends = make_channel();
  ASSERT_TRUE(ends);
  TracerChannel tracer(std::move(ends->tracer));
  const std::vector<std::byte> stack(max_stack_copy, std::byte{7});
  int sent = 0;
  while (sent < 10'000 && tracer.send_capture({}, {}, {0, stack}, 1)) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_LT(sent, 10'000);
}

TEST(Channel, TheOtherSidesDeathIsSeen) {
  auto ends = make_channel();
  ASSERT_TRUE(ends);
  CollectorChannel collector(std::move(ends->collector));
  ends->tracer.reset();
  const auto message = collector.receive();
  ASSERT_TRUE(message);
  EXPECT_FALSE(*message);

  auto others = make_channel();
  ASSERT_TRUE(others);
  TracerChannel tracer(std::move(others->tracer));
  others->collector.reset();
  EXPECT_FALSE(tracer.wait_for_ready());
  EXPECT_FALSE(tracer.send_armed());
}

TEST(Channel, AMessageOfUnknownShapeIsAnErrorNotACrash) {
  auto ends = make_channel();
  ASSERT_TRUE(ends);
  CollectorChannel collector(std::move(ends->collector));
  for (const std::string_view garbage : {"x", "0123456789abcdef"}) {
    ASSERT_GT(::send(ends->tracer.get(), garbage.data(), garbage.size(), 0), 0);
    const auto message = collector.receive();
    ASSERT_FALSE(message);
    EXPECT_EQ(message.error().code, ErrorCode::input_damaged);
  }
}

}  // namespace
}  // namespace whomap
