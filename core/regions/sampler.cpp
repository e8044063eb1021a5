// SPDX-License-Identifier: Apache-2.0
#include "core/regions/sampler.h"

#include <time.h>

#include <algorithm>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/process/own_memory.h"

namespace whomap {
namespace {

double thread_cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

void count(ReadingCost& cost, double seconds) {
  ++cost.count;
  cost.seconds += seconds;
  cost.longest_seconds = std::max(cost.longest_seconds, seconds);
}

Result<Reading> read_totals(const Target& target) {
  Reading reading;
  reading.snapshot.time_ns = monotonic_ns();
  const auto status = read_status(target.pid());
  if (!status) return tl::make_unexpected(status.error());
  reading.state = status->state;
  reading.snapshot.totals = totals_of(*status);
  reading.snapshot.threads = status->threads;
  reading.snapshot.duration_ns = monotonic_ns() - reading.snapshot.time_ns;
  // An address space that is gone is not one of 0 bytes.
  if (!status->vm_rss && status->state == 'Z' && status->threads.value_or(1) > 1)
    return fail(
        ErrorCode::process_zombie,
        fmt::format("the main thread of process {} has ended: its memory can no longer be read, though other "
                    "threads live on",
                    target.pid()));
  if (!status->vm_rss)
    return fail(ErrorCode::process_ended, fmt::format("process {} has ended", target.pid()),
                "start again with a new pid");
  return reading;
}

}  // namespace

Sampler::Clock::duration Sampler::smaps_interval() const {
  return pause_after(cost_.smaps, last_smaps_seconds_, smaps_time_share);
}

/// The last reading says what the next will cost; the longest of all was perhaps on a busy machine.
Sampler::Clock::duration Sampler::pause_after(const ReadingCost& cost, double last_seconds,
                                              double share) const {
  if (cost.count == 0) return interval_;
  return std::max(interval_, std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(last_seconds / share)));
}

/// The counters behind statm lag by some pages for each CPU, and what one region gives back another may have
/// taken: so not for ever.
std::optional<Reading::Depth> Sampler::unchanged_since(Reading::Depth due, Clock::time_point now) const {
  constexpr int longest = 10;  // intervals
  const bool smaps = due == Reading::Depth::smaps;
  if (now - (smaps ? last_smaps_ : last_maps_) >= longest * (smaps ? smaps_interval() : interval_))
    return std::nullopt;
  const std::optional<Statm> statm = read_statm(target_.pid());
  if (!statm) return std::nullopt;
  if (statm == statm_at_smaps_) return Reading::Depth::smaps;
  return !smaps && statm == statm_at_maps_ ? std::optional(Reading::Depth::maps) : std::nullopt;
}

Result<Reading> Sampler::read() {
  // What is nearly due is read now: the next time to look is a whole interval away.
  const auto now = Clock::now() + interval_ / 10;
  auto depth = Reading::Depth::status;
  if (now >= next_smaps_ && !smaps_refused_)
    depth = Reading::Depth::smaps;
  else if (now >= next_maps_)
    depth = Reading::Depth::maps;
  if (depth == Reading::Depth::status) return read(depth);
  const auto unchanged = unchanged_since(depth, now);
  if (!unchanged) return read(depth);
  ++cost_.put_off;
  return read(Reading::Depth::status, unchanged);
}

Result<Reading> Sampler::read_all() {
  return read(smaps_refused_ ? Reading::Depth::maps : Reading::Depth::smaps);
}

/// A trace may run beside the watch, and leaves its stubs behind.
void Sampler::leave_out_own(Snapshot& snapshot) {
  if (!snapshot.regions.empty()) {
    rings_.clear();
    for (const Region& region : snapshot.regions)
      if (region.vma.name == ring_mapping_name) rings_.push_back(region.vma.range());
  }
  std::vector<AddressRange> own = rings_;
  if (own_memory_) {
    const std::vector<AddressRange> told = own_memory_();
    own.insert(own.end(), told.begin(), told.end());
  }
  leave_out(target_, snapshot, make_range_set(std::move(own)));
}

Result<Reading> Sampler::read(Reading::Depth depth, std::optional<Reading::Depth> unchanged) {
  const auto begin = Clock::now();
  if (auto same = target_.check(); !same) return tl::make_unexpected(same.error());
  auto reading = read_totals(target_);
  if (reading) count(cost_.status, std::chrono::duration<double>(Clock::now() - begin).count());
  if (reading) reading->unchanged = unchanged;
  if (reading && depth != Reading::Depth::status) {
    reading->depth = depth;
    const std::optional<Statm> statm = read_statm(target_.pid());
    const double cpu_before = thread_cpu_seconds();
    auto snapshot = depth == Reading::Depth::smaps ? take_full_snapshot(target_, expected_)
                                                   : take_mapping_snapshot(target_, expected_);
    if (snapshot) {
      expected_ = snapshot->regions.size() + snapshot->regions.size() / 8;
      const double seconds = static_cast<double>(snapshot->duration_ns) / 1e9;
      const double cpu_seconds = thread_cpu_seconds() - cpu_before;
      const bool refused = depth == Reading::Depth::smaps && !snapshot->without_smaps.empty();
      smaps_refused_ = smaps_refused_ || refused;
      if (refused) reading->depth = Reading::Depth::maps;
      if (reading->depth == Reading::Depth::smaps) {
        count(cost_.smaps, seconds);
        last_smaps_seconds_ = cpu_seconds;
        next_smaps_ = Clock::now() + smaps_interval() - (Clock::now() - begin);
        statm_at_smaps_ = statm;
        last_smaps_ = begin;
      } else {
        count(cost_.maps, seconds);
        last_maps_seconds_ = cpu_seconds;
      }
      next_maps_ = Clock::now() + pause_after(cost_.maps, last_maps_seconds_, maps_time_share) -
                   (Clock::now() - begin);
      statm_at_maps_ = statm;
      last_maps_ = begin;
      reading->snapshot = std::move(*snapshot);
    } else {
      reading = tl::make_unexpected(snapshot.error());
    }
  }
  if (reading) leave_out_own(reading->snapshot);
  // At even times, and not at once again when one of them was missed.
  const bool on_time = next_ + interval_ > begin && next_ <= begin;
  next_ = (on_time ? next_ : begin) + interval_;
  if (next_ < Clock::now()) next_ = Clock::now() + interval_;
  cost_.cpu_seconds = thread_cpu_seconds();
  // Whatever was read is of this process only if it still is this process.
  if (auto same = target_.check(); !same) return tl::make_unexpected(same.error());
  return reading;
}

}  // namespace whomap
