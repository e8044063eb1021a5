// SPDX-License-Identifier: Apache-2.0
#include "core/match/interval_map.h"

#include <algorithm>

namespace whomap {
namespace {

/// How many of `count` ascending values are `value` or below. Without a branch that depends on them: which
/// way a search in random addresses goes cannot be predicted.
std::size_t count_up_to(const std::uint64_t* values, std::size_t count, std::uint64_t value) {
  const std::uint64_t* first = values;
  while (count > 1) {
    const std::size_t half = count / 2;
    // Arithmetic, since compilers make a branch of a choice.
    first += half & (std::size_t{0} - static_cast<std::size_t>(first[half - 1] <= value));
    count -= half;
  }
  return static_cast<std::size_t>(first - values) + (count == 1 && *first <= value ? 1 : 0);
}

/// Moves the elements from `at` on by one: up to make room, down over the one at `at`.
template <class Array>
void move_up(Array& array, std::uint32_t at, std::uint32_t size) {
  std::copy_backward(array.begin() + at, array.begin() + size, array.begin() + size + 1);
}
template <class Array>
void move_down(Array& array, std::uint32_t at, std::uint32_t size) {
  std::copy(array.begin() + at + 1, array.begin() + size, array.begin() + at);
}

}  // namespace

LiveInterval IntervalMap::interval(AddressRange range, std::uint64_t since_ns, const Owner& owner) {
  const bool grows_down = owner.number < 0;
  const std::int32_t number = grows_down ? ~owner.number : owner.number;
  return {range, owner.stack, number, since_ns, owner.tid, owner.site, grows_down};
}

IntervalMap::Position IntervalMap::above(std::uint64_t address) const {
  if (numbers_.empty()) return {};
  const std::size_t number = chunk_of(address);
  const Chunk& here = chunk(number);
  return {number, static_cast<std::uint32_t>(count_up_to(here.starts.data(), here.size, address))};
}

std::size_t IntervalMap::chunk_of(std::uint64_t address) const {
  const std::size_t begun = count_up_to(firsts_.data(), firsts_.size(), address);
  return begun == 0 ? 0 : begun - 1;
}

void IntervalMap::prefetch(std::uint64_t address) const {
  if (numbers_.empty()) return;
  const char* const here = reinterpret_cast<const char*>(&chunk(chunk_of(address)));
  constexpr std::size_t cache_line = 64;
  for (std::size_t at = 0; at < sizeof(Chunk); at += cache_line) __builtin_prefetch(here + at, 1);
}

IntervalMap::Position IntervalMap::settled(Position position) const {
  if (at_end(position) || position.at < chunk(position.chunk).size) return position;
  return {position.chunk + 1, 0};  // no chunk is empty
}

void IntervalMap::insert(const LiveInterval& interval) {
  const auto number = static_cast<std::int32_t>(interval.number);  // of a system call: below 1000
  const Owner owner{interval.stack, interval.site, interval.tid, interval.grows_down ? ~number : number};
  std::uint32_t owner_at = 0;
  if (free_owners_.empty()) {
    owner_at = static_cast<std::uint32_t>(owners_.size());
    owners_.push_back(owner);
  } else {
    owner_at = free_owners_.back();
    free_owners_.pop_back();
    owners_[owner_at] = owner;
  }
  const std::uint64_t start = interval.range.start;
  if (numbers_.empty()) {
    numbers_.push_back(new_chunk());
    firsts_.push_back(start);
  }
  Position position = above(start);
  if (chunk(position.chunk).size == capacity) {
    split(position.chunk);
    position = above(start);
  }
  Chunk& here = chunk(position.chunk);
  move_up(here.starts, position.at, here.size);
  move_up(here.ends, position.at, here.size);
  move_up(here.since_ns, position.at, here.size);
  move_up(here.owners, position.at, here.size);
  here.starts[position.at] = start;
  here.ends[position.at] = interval.range.end;
  here.since_ns[position.at] = interval.since_ns;
  here.owners[position.at] = owner_at;
  ++here.size;
  ++size_;
  firsts_[position.chunk] = here.starts[0];
}

IntervalMap::Position IntervalMap::erase(Position position) {
  Chunk& here = chunk(position.chunk);
  free_owners_.push_back(here.owners[position.at]);
  move_down(here.starts, position.at, here.size);
  move_down(here.ends, position.at, here.size);
  move_down(here.since_ns, position.at, here.size);
  move_down(here.owners, position.at, here.size);
  --here.size;
  --size_;
  if (here.size == 0) {
    remove_chunk(position.chunk);
    return {position.chunk, 0};
  }
  firsts_[position.chunk] = here.starts[0];
  if (here.size <= capacity / 4) merge_with_next(position.chunk);
  return position;
}

void IntervalMap::split(std::size_t number) {
  const std::uint32_t added = new_chunk();
  Chunk& low = chunk(number);
  Chunk& high = chunks_[added];
  constexpr std::uint32_t half = capacity / 2;
  std::copy(low.starts.begin() + half, low.starts.end(), high.starts.begin());
  std::copy(low.ends.begin() + half, low.ends.end(), high.ends.begin());
  std::copy(low.since_ns.begin() + half, low.since_ns.end(), high.since_ns.begin());
  std::copy(low.owners.begin() + half, low.owners.end(), high.owners.begin());
  low.size = half;
  high.size = capacity - half;
  const auto behind = static_cast<std::ptrdiff_t>(number) + 1;
  numbers_.insert(numbers_.begin() + behind, added);
  firsts_.insert(firsts_.begin() + behind, high.starts[0]);
}

void IntervalMap::merge_with_next(std::size_t number) {
  if (number + 1 >= numbers_.size()) return;
  Chunk& low = chunk(number);
  const Chunk& high = chunk(number + 1);
  // Half full at most, so that the next insertions do not split it again.
  if (low.size + high.size > capacity / 2) return;
  std::copy(high.starts.begin(), high.starts.begin() + high.size, low.starts.begin() + low.size);
  std::copy(high.ends.begin(), high.ends.begin() + high.size, low.ends.begin() + low.size);
  std::copy(high.since_ns.begin(), high.since_ns.begin() + high.size, low.since_ns.begin() + low.size);
  std::copy(high.owners.begin(), high.owners.begin() + high.size, low.owners.begin() + low.size);
  low.size += high.size;
  remove_chunk(number + 1);
}

void IntervalMap::remove_chunk(std::size_t number) {
  free_chunks_.push_back(numbers_[number]);
  numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(number));
  firsts_.erase(firsts_.begin() + static_cast<std::ptrdiff_t>(number));
}

std::uint32_t IntervalMap::new_chunk() {
  if (free_chunks_.empty()) {
    chunks_.emplace_back();
    return static_cast<std::uint32_t>(chunks_.size() - 1);
  }
  const std::uint32_t number = free_chunks_.back();
  free_chunks_.pop_back();
  chunks_[number].size = 0;
  return number;
}

bool IntervalMap::any_in(AddressRange range) const {
  if (range.size() == 0) return false;
  const Position position = above(range.end - 1);
  return position.at != 0 && chunk(position.chunk).ends[position.at - 1] > range.start;
}

std::map<std::uint64_t, LiveInterval> IntervalMap::copy() const {
  std::map<std::uint64_t, LiveInterval> intervals;
  for (std::size_t number = 0; number < numbers_.size(); ++number) {
    const Chunk& here = chunk(number);
    for (std::uint32_t i = 0; i < here.size; ++i)
      intervals.emplace_hint(
          intervals.end(), here.starts[i],
          interval({here.starts[i], here.ends[i]}, here.since_ns[i], owners_[here.owners[i]]));
  }
  return intervals;
}

}  // namespace whomap
