// SPDX-License-Identifier: Apache-2.0
// What each stack's calls come to, event by event.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "core/match/attribution.h"
#include "core/trace/records.h"

namespace whomap {

struct RowCounts {
  RowKey key;
  std::uint64_t count = 0, failed = 0;
  std::uint64_t mapped_bytes = 0, unmapped_bytes = 0;
  std::uint64_t first_ns = std::numeric_limits<std::uint64_t>::max(), last_ns = 0;
  std::uint64_t threads = 0;
  std::uint32_t site = 0;
};

class CallCounts {
 public:
  void add(const TraceEvent& event);

  [[nodiscard]] const std::vector<RowCounts>& rows() const { return rows_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  [[nodiscard]] std::uint64_t failed() const { return failed_; }
  /// Exit of the first and the last call, ns; the largest number and 0 where there was none.
  [[nodiscard]] std::uint64_t first_ns() const { return first_ns_; }
  [[nodiscard]] std::uint64_t last_ns() const { return last_ns_; }

 private:
  /// Which threads made a row's calls. The first 256 threads of the trace are bits, which most events hit.
  struct Threads {
    std::uint64_t early[4]{};
    absl::flat_hash_set<std::uint32_t> others;
  };
  /// False when it was there before.
  bool add_thread(Threads& threads, pid_t tid);
  std::uint32_t row_of(const TraceEvent& event);

  std::vector<RowCounts> rows_;
  std::vector<Threads> threads_;  ///< of rows_
  absl::flat_hash_map<std::uint64_t, std::uint32_t> row_by_key_;
  absl::flat_hash_map<pid_t, std::uint32_t> thread_numbers_;  ///< in the order of their first call
  std::uint64_t events_ = 0, failed_ = 0;
  std::uint64_t first_ns_ = std::numeric_limits<std::uint64_t>::max(), last_ns_ = 0;
};

}  // namespace whomap
