// SPDX-License-Identifier: Apache-2.0
#include "core/match/event_order.h"

namespace whomap {

void EventOrder::push(const TraceEvent& event) {
  const Numbered numbered{event, next_number_++};
  if (in_order_.empty() || event.call.exit_ns >= in_order_.back().event.call.exit_ns)
    in_order_.push_back(numbered);
  else
    stragglers_.push(numbered);
  if (in_order_.size() + stragglers_.size() > window_) pop();
}

void EventOrder::flush() {
  while (!in_order_.empty() || !stragglers_.empty()) pop();
}

void EventOrder::pop() {
  const bool from_run =
      stragglers_.empty() || (!in_order_.empty() && Later{}(stragglers_.top(), in_order_.front()));
  const TraceEvent event = from_run ? in_order_.front().event : stragglers_.top().event;
  if (from_run)
    in_order_.pop_front();
  else
    stragglers_.pop();
  if (event.call.exit_ns < handed_on_ns_)
    ++late_;
  else
    handed_on_ns_ = event.call.exit_ns;
  sink_(event);
}

}  // namespace whomap
