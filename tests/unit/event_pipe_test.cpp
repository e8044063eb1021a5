// SPDX-License-Identifier: Apache-2.0
// Events on their way from the file to the ledger: sorted, and handed to another thread.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "core/match/event_order.h"
#include "core/match/event_pipe.h"

namespace whomap {
namespace {

TraceEvent event_at(std::uint64_t exit_ns, std::uint32_t stack) {
  TraceEvent event;
  event.call.exit_ns = exit_ns;
  event.stack = stack;
  return event;
}

// Against std::stable_sort, for windows around the size of the disorder.
TEST(EventOrder, SortsWhatIsLessThanAWindowLateAndKeepsTheOrderOfOneInstant) {
  std::mt19937 random(7);
  for (const std::size_t window : {1U, 2U, 3U, 16U, 100U}) {
    std::vector<TraceEvent> events;
    for (std::uint32_t i = 0; i < 1'000; ++i)
      events.push_back(event_at(i / 3 * 10 + random() % (window < 16 ? 1 : window), i));
    std::vector<TraceEvent> sorted = events;
    std::stable_sort(sorted.begin(), sorted.end(), [](const TraceEvent& left, const TraceEvent& right) {
      return left.call.exit_ns < right.call.exit_ns;
    });
    std::vector<std::uint32_t> got;
    EventOrder order([&](const TraceEvent& event) { got.push_back(event.stack); }, window);
    for (const TraceEvent& event : events) order.push(event);
    order.flush();
    ASSERT_EQ(got.size(), events.size()) << window;
    EXPECT_EQ(order.late(), 0U) << window;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], sorted[i].stack) << window << " " << i;
  }
}

TEST(EventOrder, CountsWhatIsMoreThanAWindowLate) {
  std::vector<std::uint64_t> got;
  EventOrder order([&](const TraceEvent& event) { got.push_back(event.call.exit_ns); }, 4);
  for (std::uint64_t ns = 10; ns < 20; ++ns) order.push(event_at(ns, 0));
  order.push(event_at(1, 0));
  order.flush();
  EXPECT_EQ(got.size(), 11U);
  EXPECT_EQ(order.late(), 1U);
}

TEST(EventPipe, HandsOverEveryEventInOrder) {
  for (const std::uint32_t count : {0U, 1U, 1'023U, 1'024U, 1'025U, 100'000U}) {
    std::uint32_t next = 0;
    const auto here = std::this_thread::get_id();
    pipe_events(
        [&](const EventSink& put) {
          EXPECT_NE(std::this_thread::get_id(), here);
          for (std::uint32_t i = 0; i < count; ++i) put(event_at(i, i));
        },
        [&](std::span<const TraceEvent> events) {
          for (const TraceEvent& event : events) ASSERT_EQ(event.stack, next++);
        });
    EXPECT_EQ(next, count);
  }
}

TEST(EventPipe, AnExceptionOfEitherSideEndsBoth) {
  std::size_t seen = 0;
  EXPECT_THROW(pipe_events(
                   [](const EventSink& put) {
                     for (std::uint32_t i = 0; i < 5'000; ++i) put(event_at(i, i));
                     throw std::runtime_error("reading");
                   },
                   [&](std::span<const TraceEvent> events) { seen += events.size(); }),
               std::runtime_error);
  EXPECT_LE(seen, 5'000U);
  // The producer would never end by itself.
  EXPECT_THROW(pipe_events(
                   [](const EventSink& put) {
                     for (std::uint32_t i = 0;; ++i) put(event_at(i, i));
                   },
                   [](std::span<const TraceEvent> events) {
                     if (events.back().stack > 10'000) throw std::length_error("working");
                   }),
               std::length_error);
}

/// In a process of its own: as a user who may have no thread more.
TEST(EventPipe, WorksWithoutAThread) {
  const auto without_threads = [] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(3);
    bool refused = false;
    try {
      std::thread([] {}).join();
    } catch (const std::system_error&) {
      refused = true;
    }
    std::uint32_t next = 0;
    bool here = true;
    const auto caller = std::this_thread::get_id();
    pipe_events(
        [](const EventSink& put) {
          for (std::uint32_t i = 0; i < 3'000; ++i) put(event_at(i, i));
        },
        [&](std::span<const TraceEvent> events) {
          here = here && std::this_thread::get_id() == caller;
          for (const TraceEvent& event : events) next += event.stack == next ? 1U : 10'000U;
        });
    ::_exit(!refused ? 4 : next == 3'000 && here ? 0 : 1);
  };
  EXPECT_EXIT(without_threads(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace whomap
