// SPDX-License-Identifier: Apache-2.0
#include "core/trace/slowdown_budget.h"

namespace whomap {

void SlowdownBudget::look(double seconds, std::uint64_t waited_ns) {
  constexpr double window = 1.0, shortest = 0.5, ns_per_second = 1e9;
  looks_.push_back({seconds, waited_ns});
  // The first one that is kept is the last that is a window or more ago.
  while (looks_.size() > 2 && seconds - looks_[1].seconds >= window) looks_.pop_front();
  const Look& first = looks_.front();
  const double passed = seconds - first.seconds;
  spent_ = passed < shortest ? 0 : static_cast<double>(waited_ns - first.waited_ns) / ns_per_second / passed;
}

}  // namespace whomap
