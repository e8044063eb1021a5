// SPDX-License-Identifier: Apache-2.0
// When to read what: status at every interval, maps often, smaps rarely. Reading smaps walks the target's
// page tables under its mmap lock (4.5 s for 200 GB in one public report), so how often is decided by what it
// cost, and where statm is the same as before it is put off.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/process/statm.h"
#include "core/regions/snapshot.h"

namespace whomap {

/// The part of the time that may go into reading each file. Processor time decides: it is what the kernel
/// needs with the target's lock held, and a reader that had to wait says nothing of the next reading.
inline constexpr double smaps_time_share = 0.01;
inline constexpr double maps_time_share = 0.02;

/// What reading one of the files cost so far, by the clock on the wall.
struct ReadingCost {
  std::uint64_t count = 0;
  double seconds = 0, longest_seconds = 0;
};

struct WatchCost {
  ReadingCost status, maps, smaps;
  std::uint64_t put_off = 0;  ///< readings of maps or smaps, since statm had not changed
  double cpu_seconds = 0;     ///< of the thread that watches, everything it does
};

struct Reading {
  enum class Depth { status, maps, smaps };
  Depth depth = Depth::status;
  Snapshot snapshot;  ///< regions are empty for Depth::status
  char state = '?';   ///< of the process: R S D T t ... (man 5 proc_pid_stat)
  /// Why a reading of the regions that was due is only one of status: nothing has changed since the last one
  /// of this depth, which tells all that this one could.
  std::optional<Depth> unchanged;
};

class Sampler {
 public:
  using Clock = std::chrono::steady_clock;

  /// Memory in the target that belongs to a trace and is no growth of the target's.
  using OwnMemory = std::function<std::vector<AddressRange>()>;

  /// `target` must outlive the sampler. `own_memory` is asked at each reading; a ring of the probe engine is
  /// known without it, by its name.
  Sampler(const Target& target, std::chrono::duration<double> interval, OwnMemory own_memory = {})
      : target_(target),
        interval_(std::chrono::duration_cast<Clock::duration>(interval)),
        own_memory_(std::move(own_memory)) {}

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
  Result<Reading> read(Reading::Depth depth, std::optional<Reading::Depth> unchanged = {});
  /// The deepest earlier reading since which statm is the same; nullopt also when `due` has been left out for
  /// long enough.
  [[nodiscard]] std::optional<Reading::Depth> unchanged_since(Reading::Depth due,
                                                              Clock::time_point now) const;
  void leave_out_own(Snapshot& snapshot);
  [[nodiscard]] Clock::duration pause_after(const ReadingCost& cost, double last_seconds, double share) const;

  const Target& target_;
  Clock::duration interval_;
  OwnMemory own_memory_;
  std::vector<AddressRange> rings_;  ///< as of the last reading of the regions
  Clock::time_point next_{}, next_maps_{}, next_smaps_{};
  /// What statm was just before the last reading of each, and when that reading was.
  std::optional<Statm> statm_at_maps_, statm_at_smaps_;
  Clock::time_point last_maps_{}, last_smaps_{};
  double last_maps_seconds_ = 0, last_smaps_seconds_ = 0;  ///< processor time
  std::size_t expected_ = 0;                               ///< regions, as of the last reading
  bool smaps_refused_ = false;
  WatchCost cost_;
};

}  // namespace whomap
