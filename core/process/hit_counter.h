// SPDX-License-Identifier: Apache-2.0
// Counts how often threads of a process execute one instruction, by the processor's debug registers
// (perf_event_open, PERF_TYPE_BREAKPOINT): nothing is stopped and nothing written into the process.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/process/target.h"

namespace whomap {

class HitCounter {
 public:
  /// x86 has four debug registers (DR0 to DR3) for each thread.
  static constexpr std::size_t most_at_once = 4;

  /// For the threads there are, and for those they start later. Counting begins with enable(true). A hit
  /// costs the thread a debug exception: 12 us on a virtual machine with Linux 6.18. Errors: not_permitted,
  /// kernel_feature when the kernel refuses the counters.
  static Result<HitCounter> open(const Target& target, std::uint64_t address);

  void enable(bool on) const;
  /// Hits so far, all threads together.
  [[nodiscard]] std::uint64_t read() const;

 private:
  explicit HitCounter(std::vector<UniqueFd> threads) : threads_(std::move(threads)) {}
  std::vector<UniqueFd> threads_;
};

/// A counter needs a descriptor for every thread; the soft limit is often 1024. Raises it to the hard one.
void allow_many_descriptors();

}  // namespace whomap
