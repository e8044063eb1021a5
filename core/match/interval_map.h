// SPDX-License-Identifier: Apache-2.0
// Disjoint intervals of addresses by start, made for 100,000 of them and ten million changes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/process/vma.h"
#include "core/regions/range_set.h"

namespace whomap {

struct LiveInterval {
  AddressRange range;
  std::uint32_t stack = 0;
  std::int64_t number = 0;     ///< the call that made it
  std::uint64_t since_ns = 0;  ///< exit of the call that put it at this address
  pid_t tid = 0;
  std::uint32_t site = 0;
  bool grows_down = false;  ///< MAP_GROWSDOWN: may have become longer at its start without a call
};

/// Sorted chunks of up to 32 intervals, found through a directory of their first addresses. A look-up waits
/// for memory three or four times; in a B-tree of 100,000 intervals it did six to ten times, which was half
/// of the time of a match.
class IntervalMap {
 public:
  /// Takes out what `range` covers of intervals that are there since `until_ns` or before, and gives each
  /// part to `taken`; younger ones stay. Returns how many stayed.
  template <class Taken>
  std::uint64_t cut(AddressRange range, std::uint64_t until_ns, const Taken& taken);
  /// Its range must be free.
  void insert(const LiveInterval& interval);
  /// Any interval in `range`.
  [[nodiscard]] bool any_in(AddressRange range) const;
  /// The intervals that start in `range`, until `visit` returns false.
  template <class Visit>
  void each_from(AddressRange range, const Visit& visit) const;
  /// Has the processor fetch what cut() and insert() at this address will read.
  void prefetch(std::uint64_t address) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  /// By start address: a copy, O(n log n).
  [[nodiscard]] std::map<std::uint64_t, LiveInterval> copy() const;

 private:
  /// What of an interval is not needed for finding and ending one.
  struct Owner {
    std::uint32_t stack = 0;
    std::uint32_t site = 0;
    pid_t tid = 0;
    std::int32_t number = 0;  ///< negative: ~number, and grows_down
  };
  static constexpr std::uint32_t capacity = 32;
  struct Chunk {
    std::uint32_t size = 0;
    std::array<std::uint32_t, capacity> owners;  ///< indices in owners_
    std::array<std::uint64_t, capacity> starts, ends, since_ns;
  };
  /// The intervals of chunk number `chunk` from index `at` on; past the last chunk: the end.
  struct Position {
    std::size_t chunk = 0;
    std::uint32_t at = 0;
  };

  [[nodiscard]] static LiveInterval interval(AddressRange range, std::uint64_t since_ns, const Owner& owner);
  [[nodiscard]] Chunk& chunk(std::size_t number) { return chunks_[numbers_[number]]; }
  [[nodiscard]] const Chunk& chunk(std::size_t number) const { return chunks_[numbers_[number]]; }
  /// The first interval that starts above `address`, in the last chunk that begins at or below it.
  [[nodiscard]] Position above(std::uint64_t address) const;
  /// Number of that chunk; 0 where there is none.
  [[nodiscard]] std::size_t chunk_of(std::uint64_t address) const;
  /// To the next chunk where `position` is behind the last of its own.
  [[nodiscard]] Position settled(Position position) const;
  [[nodiscard]] bool at_end(Position position) const { return position.chunk >= numbers_.size(); }
  /// Returns where the next one is then.
  Position erase(Position position);
  void split(std::size_t number);
  void merge_with_next(std::size_t number);
  void remove_chunk(std::size_t number);
  std::uint32_t new_chunk();

  std::vector<std::uint64_t> firsts_;   ///< by position: starts[0] of the chunk
  std::vector<std::uint32_t> numbers_;  ///< by position: index in chunks_
  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> free_chunks_;
  std::vector<Owner> owners_;
  std::vector<std::uint32_t> free_owners_;
  std::size_t size_ = 0;
};

template <class Taken>
std::uint64_t IntervalMap::cut(AddressRange range, std::uint64_t until_ns, const Taken& taken) {
  std::uint64_t stayed = 0;
  Position position = above(range.start);
  if (position.at != 0 && chunk(position.chunk).ends[position.at - 1] > range.start) --position.at;
  std::optional<LiveInterval> rest;  // of the last one; inserting moves what comes behind it
  for (position = settled(position); !at_end(position); position = settled(position)) {
    Chunk& here = chunk(position.chunk);
    const AddressRange whole{here.starts[position.at], here.ends[position.at]};
    if (whole.start >= range.end) break;
    const std::uint64_t since_ns = here.since_ns[position.at];
    if (since_ns > until_ns) {
      ++stayed;
      ++position.at;
      continue;
    }
    const AddressRange gone = common(whole, range);
    const Owner& owner = owners_[here.owners[position.at]];
    taken(interval(gone, since_ns, owner));
    if (whole.end > gone.end) rest = interval({gone.end, whole.end}, since_ns, owner);
    if (whole.start < gone.start) {
      here.ends[position.at] = gone.start;
      ++position.at;
    } else {
      position = erase(position);
    }
  }
  if (rest) insert(*rest);
  return stayed;
}

template <class Visit>
void IntervalMap::each_from(AddressRange range, const Visit& visit) const {
  Position position = above(range.start);
  if (position.at != 0 && chunk(position.chunk).starts[position.at - 1] == range.start) --position.at;
  for (position = settled(position); !at_end(position); position = settled(position)) {
    const Chunk& here = chunk(position.chunk);
    const AddressRange whole{here.starts[position.at], here.ends[position.at]};
    if (whole.start >= range.end ||
        !visit(interval(whole, here.since_ns[position.at], owners_[here.owners[position.at]])))
      return;
    ++position.at;
  }
}

}  // namespace whomap
