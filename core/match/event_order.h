// SPDX-License-Identifier: Apache-2.0
// Events by their exit time, from a file in which several threads' events are slightly out of order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
  explicit EventOrder(Sink sink, std::size_t window = 16384) : sink_(std::move(sink)), window_(window) {}

  void push(const TraceEvent& event);
  /// Hands on everything that is held back.
  void flush();
  [[nodiscard]] std::uint64_t late() const { return late_; }

 private:
  struct Numbered {
    TraceEvent event;
    std::uint64_t number;  ///< in the file: keeps events of one instant in their order
  };
  struct Later {
    bool operator()(const Numbered& left, const Numbered& right) const {
      return left.event.call.exit_ns != right.event.call.exit_ns
                 ? left.event.call.exit_ns > right.event.call.exit_ns
                 : left.number > right.number;
    }
  };
  void pop();

  Sink sink_;
  std::size_t window_;
  std::deque<Numbered> in_order_;  ///< ascending run
  std::priority_queue<Numbered, std::vector<Numbered>, Later> stragglers_;
  std::uint64_t next_number_ = 0;
  std::uint64_t handed_on_ns_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace whomap
