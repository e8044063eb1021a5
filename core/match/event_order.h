// SPDX-License-Identifier: Apache-2.0
// Events by their exit time, from a file in which several threads' events are slightly out of order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "core/trace/records.h"

namespace whomap {

/// Holds back a window of events and hands them on by exit_ns. An event that comes more than a window late is
/// handed on where it is, and counted. Costs O(1) for events that come in order, O(log window) for others.
class EventOrder {
 public:
  using Sink = std::function<void(const TraceEvent&)>;
  explicit EventOrder(Sink sink, std::size_t window = 16384)
      : sink_(std::move(sink)), window_(window), run_(window + 1) {}

  void push(const TraceEvent& event);
  /// Hands on everything that is held back.
  void flush();
  [[nodiscard]] std::uint64_t late() const { return late_; }

 private:
  struct Straggler {
    TraceEvent event;
    std::uint64_t number;  ///< in the file: keeps events of one instant in their order
  };
  struct Later {
    bool operator()(const Straggler& left, const Straggler& right) const {
      return left.event.call.exit_ns != right.event.call.exit_ns
                 ? left.event.call.exit_ns > right.event.call.exit_ns
                 : left.number > right.number;
    }
  };
  void pop();
  void hand_on(const TraceEvent& event);

  Sink sink_;
  std::size_t window_;
  /// The ascending run, a ring. An event that came in order is older than a straggler of the same instant:
  /// at that time the run's last was later.
  std::vector<TraceEvent> run_;
  std::size_t run_first_ = 0, run_size_ = 0;
  std::priority_queue<Straggler, std::vector<Straggler>, Later> stragglers_;
  std::uint64_t next_number_ = 0;
  std::uint64_t last_in_run_ns_ = 0;
  std::uint64_t handed_on_ns_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace whomap
