// SPDX-License-Identifier: Apache-2.0
#include "core/match/event_order.h"

namespace whomap {

void EventOrder::push(const TraceEvent& event) {
  if (run_size_ == 0 || event.call.exit_ns >= last_in_run_ns_) {
    const std::size_t end = run_first_ + run_size_;
    run_[end < run_.size() ? end : end - run_.size()] = event;
    ++run_size_;
    last_in_run_ns_ = event.call.exit_ns;
  } else {
    stragglers_.push({event, next_number_++});
  }
  if (run_size_ + stragglers_.size() > window_) pop();
}

void EventOrder::flush() {
  while (run_size_ != 0 || !stragglers_.empty()) pop();
}

void EventOrder::pop() {
  const bool from_run = stragglers_.empty() || (run_size_ != 0 && run_[run_first_].call.exit_ns <=
                                                                      stragglers_.top().event.call.exit_ns);
  if (from_run) {
    hand_on(run_[run_first_]);
    if (++run_first_ == run_.size()) run_first_ = 0;
    --run_size_;
  } else {
    hand_on(stragglers_.top().event);
    stragglers_.pop();
  }
}

void EventOrder::hand_on(const TraceEvent& event) {
  if (event.call.exit_ns < handed_on_ns_)
    ++late_;
  else
    handed_on_ns_ = event.call.exit_ns;
  sink_(event);
}

}  // namespace whomap
