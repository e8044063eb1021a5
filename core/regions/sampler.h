// SPDX-License-Identifier: Apache-2.0
// When to read what: status at every interval, maps often, smaps rarely. Reading smaps walks the target's
// page tables under its mmap lock (4.5 s for 200 GB in one public report), so how often is decided by what it
// cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/error.h"
#include "core/regions/snapshot.h"

namespace whomap {

/// The part of the time that may go into reading each file, measured by the clock on the wall: that is how
/// long the target's lock may have been held.
inline constexpr double smaps_time_share = 0.01;
inline constexpr double maps_time_share = 0.02;

/// What reading one of the files cost so far.
struct ReadingCost {
  std::uint64_t count = 0;
  double seconds = 0, longest_seconds = 0;
};

struct WatchCost {
  ReadingCost status, maps, smaps;
  double cpu_seconds = 0;  ///< of the thread that watches, everything it does
};

struct Reading {
  enum class Depth { status, maps, smaps };
  Depth depth = Depth::status;
  Snapshot snapshot;  ///< regions are empty for Depth::status
  char state = '?';   ///< of the process: R S D T t ... (man 5 proc_pid_stat)
};

class Sampler {
 public:
  using Clock = std::chrono::steady_clock;

  /// `target` must outlive the sampler.
  Sampler(const Target& target, std::chrono::duration<double> interval)
      : target_(target), interval_(std::chrono::duration_cast<Clock::duration>(interval)) {}

  /// Reads what is due now. The first time that is everything. Errors: process_ended, process_replaced (exec,
  /// or another process of this pid), and those of reading /proc.
  Result<Reading> read();
  /// Reads everything, whatever is due.
  Result<Reading> read_all();

  /// When read() should be called next.
  [[nodiscard]] Clock::time_point next() const { return next_; }
  /// Time between two readings of smaps, as its cost has it.
  [[nodiscard]] Clock::duration smaps_interval() const;
  [[nodiscard]] const WatchCost& cost() const { return cost_; }

 private:
  Result<Reading> read(Reading::Depth depth);
  [[nodiscard]] Clock::duration pause_after(const ReadingCost& cost, double last_seconds, double share) const;

  const Target& target_;
  Clock::duration interval_;
  Clock::time_point next_{}, next_maps_{}, next_smaps_{};
  double last_maps_seconds_ = 0, last_smaps_seconds_ = 0;
  std::size_t expected_ = 0;  ///< regions, as of the last reading
  bool smaps_refused_ = false;
  WatchCost cost_;
};

}  // namespace whomap
