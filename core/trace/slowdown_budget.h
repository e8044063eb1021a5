// SPDX-License-Identifier: Apache-2.0
// Does the trace cost the target more than it may?
#pragma once

#include <cstdint>
#include <deque>

namespace whomap {

/// The share of time in which a thread of the target waits for whomap, of one thread's time: 0.1 where each
/// second threads wait for a tenth of a second in all. It is looked at over the last second, so that what the
/// first calls of a burst cost does not end a trace, and what the next hour would cost does.
class SlowdownBudget {
 public:
  /// `share`: 1 or more is no limit: one thread cannot wait for longer than all the time.
  explicit SlowdownBudget(double share) : share_(share) {}

  /// `seconds`: since any fixed moment, rising; `waited_ns`: by all threads of the target so far, since any.
  void look(double seconds, std::uint64_t waited_ns);

  /// Over the last second, or what there is of it; 0 before half a second has been seen.
  [[nodiscard]] double spent() const { return spent_; }
  [[nodiscard]] bool exceeded() const { return share_ < 1 && spent_ > share_; }

 private:
  struct Look {
    double seconds;
    std::uint64_t waited_ns;
  };
  double share_;
  double spent_ = 0;
  std::deque<Look> looks_;
};

}  // namespace whomap
