// SPDX-License-Identifier: Apache-2.0
// Which captured call owns which mapped address now: a map of disjoint live intervals.
#pragma once

#include <cstdint>
#include <map>

#include "core/capture/call_event.h"
#include "core/process/vma.h"

namespace whomap {

struct LiveInterval {
  AddressRange range;
  std::uint32_t stack = 0;
  std::int64_t number = 0;      ///< the call that made it
  std::uint64_t since_ns = 0;
};

class Ledger {
 public:
  /// `page_size` in bytes: the kernel rounds lengths up to it.
  explicit Ledger(std::uint64_t page_size = 4096) : page_size_(page_size) {}

  /// Applies one call. Calls must come in the order of their effect in the kernel as far as it is known.
  /// Failed calls change nothing.
  void apply(const CallEvent& call, std::uint32_t stack);

  /// Live intervals by start address.
  [[nodiscard]] const std::map<std::uint64_t, LiveInterval>& live() const { return live_; }

 private:
  void cut(AddressRange range);
  void add(LiveInterval interval);

  std::uint64_t page_size_;
  std::map<std::uint64_t, LiveInterval> live_;
  std::uint64_t break_ = 0;  ///< the last program break seen, 0 before the first
};

}  // namespace whomap
