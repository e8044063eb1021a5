// SPDX-License-Identifier: Apache-2.0
#include "core/match/ledger.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/process/syscalls.h"
#include "core/regions/range_set.h"

namespace whomap {
namespace {

// Values of the x86-64 ABI (include/uapi of Linux 6.1), not of the machine that reads the trace.
constexpr std::uint64_t map_fixed = 0x10;
constexpr std::uint64_t map_grows_down = 0x100;
constexpr std::uint64_t map_hugetlb = 0x40000;
constexpr std::uint64_t map_fixed_noreplace = 0x100000;
constexpr unsigned map_huge_shift = 26;  // the base-2 logarithm of the size lies in six bits
constexpr std::uint64_t remap_fixed = 2;
constexpr std::uint64_t remap_dontunmap = 4;

constexpr std::int64_t nr_mmap = 9, nr_munmap = 11, nr_brk = 12, nr_mremap = 25, nr_shmat = 30, nr_shmdt = 67;

/// How long a munmap may trail behind the conflict that foretold it where only returns are timed: GDB hands
/// over the stops of many threads one by one, at up to 5 ms each.
constexpr std::uint64_t late_unmap_ns = 100'000'000;
/// Enough for every thread of a large process to have one call on its way.
constexpr std::size_t displaced_limit = 4096;

constexpr std::uint64_t any_time = std::numeric_limits<std::uint64_t>::max();

/// Not a function: then nothing of what is forgotten is even read.
constexpr auto forget = [](const LiveInterval&) {};

bool only_return_seen(const CallEvent& call) {
  return call.enter_ns == call.exit_ns;
}

LiveInterval with_range(LiveInterval interval, AddressRange range) {
  interval.range = range;
  return interval;
}

}  // namespace

std::uint64_t Ledger::page_up(std::uint64_t length) const {
  if (length > std::numeric_limits<std::uint64_t>::max() - (page_size_ - 1)) return 0;
  return (length + page_size_ - 1) / page_size_ * page_size_;
}

bool Ledger::plausible(std::uint64_t address, std::uint64_t length) const {
  return address % page_size_ == 0 && length != 0 &&
         length <= std::numeric_limits<std::uint64_t>::max() - address;
}

void Ledger::apply(const CallEvent& call, std::uint32_t stack) {
  if (call.number == nr_brk) return apply_brk(call, stack);
  if (is_syscall_error(call.result)) return;
  switch (call.number) {
    case nr_mmap: return apply_mmap(call, stack);
    case nr_munmap: return apply_munmap(call);
    case nr_mremap: return apply_mremap(call, stack);
    case nr_shmat: return add_unsized(call, stack);
    case nr_shmdt: return apply_shmdt(call);
    default: return;  // mprotect and madvise change no owner
  }
}

void Ledger::prefetch(const CallEvent& call) const {
  live_.prefetch(call.number == nr_munmap ? call.arguments[0] : call.result);
}

AddressRange Ledger::mapped_by(const CallEvent& call) const {
  if (is_syscall_error(call.result)) return {};
  if (call.number == nr_brk) {
    const std::uint64_t before = page_up(break_);
    const std::uint64_t after = page_up(call.result);
    const bool grows = break_ != 0 && call.arguments[0] == call.result && after > before;
    return grows ? AddressRange{before, after} : AddressRange{};
  }
  if (call.number != nr_mmap) return {};
  const std::uint64_t flags = call.arguments[3];
  std::uint64_t length = page_up(call.arguments[1]);
  if ((flags & map_hugetlb) != 0) {
    const std::uint64_t log2 = flags >> map_huge_shift & 63;
    const std::uint64_t unit = log2 == 0 ? huge_page_size_ : std::uint64_t{1} << log2;
    const std::uint64_t units = length / unit + (length % unit != 0 ? 1 : 0);
    length = units > std::numeric_limits<std::uint64_t>::max() / unit ? 0 : units * unit;
  }
  return plausible(call.result, length) ? AddressRange{call.result, call.result + length} : AddressRange{};
}

void Ledger::apply_if_free(const CallEvent& call, std::uint32_t stack) {
  const AddressRange range = mapped_by(call);
  if (range.size() != 0 && !live_.any_in(range)) apply(call, stack);
}

void Ledger::apply_mmap(const CallEvent& call, std::uint32_t stack) {
  const std::uint64_t flags = call.arguments[3];
  // The kernel refuses a length of 0 (man 2 mmap): the log that this comes from had no arguments.
  if (call.arguments[1] == 0) {
    ++counts_.unknown_length;
    return add_unsized(call, stack);
  }
  const AddressRange range = mapped_by(call);
  if (range.size() == 0) {
    ++counts_.implausible;
    return;
  }
  // MAP_FIXED_NOREPLACE fails with EEXIST where something is mapped (man 2 mmap), whatever MAP_FIXED says.
  const bool replaces = (flags & map_fixed) != 0 && (flags & map_fixed_noreplace) == 0;
  if (replaces) cut(range, call.enter_ns, forget);
  add({range, stack, call.number, call.exit_ns, call.tid, call.site, (flags & map_grows_down) != 0},
      !replaces);
}

void Ledger::apply_munmap(const CallEvent& call) {
  const std::uint64_t length = page_up(call.arguments[1]);
  if (call.result == 0 && call.arguments[1] == 0) {  // EINVAL if it were so
    ++counts_.unknown_arguments;
    return;
  }
  if (call.result != 0 || !plausible(call.arguments[0], length)) {
    ++counts_.implausible;
    return;
  }
  unmap({call.arguments[0], call.arguments[0] + length}, call);
}

void Ledger::apply_mremap(const CallEvent& call, std::uint32_t stack) {
  const std::uint64_t old_length = page_up(call.arguments[1]);
  const std::uint64_t new_length = page_up(call.arguments[2]);
  const std::uint64_t flags = call.arguments[3];
  const std::uint64_t from = call.arguments[0];
  const std::uint64_t to = call.result;
  if (call.arguments[2] == 0) {  // EINVAL if it were so
    ++counts_.unknown_arguments;
    return;
  }
  if (!plausible(to, new_length) || from % page_size_ != 0 ||
      old_length > std::numeric_limits<std::uint64_t>::max() - from) {
    ++counts_.implausible;
    return;
  }
  const LiveInterval made{
      {to, to + new_length}, stack, call.number, call.exit_ns, call.tid, call.site, false};
  const bool fixed = (flags & remap_fixed) != 0;
  if (to == from) {
    if (new_length < old_length) unmap({from + new_length, from + old_length}, call);
    if (new_length > old_length) add(with_range(made, {from + old_length, from + new_length}), true);
    return;
  }
  if (fixed) cut(made.range, call.enter_ns, forget);
  // An old length of 0 maps shared memory a second time; MREMAP_DONTUNMAP moves the pages and leaves the
  // mapping (man 2 mremap). Both make a mapping that did not exist, and end none.
  if (old_length == 0 || (flags & remap_dontunmap) != 0) {
    add(made, !fixed);
    return;
  }
  const AddressRange old{from, from + old_length};
  Pieces moved = take_displaced(old, call);
  std::vector<AddressRange> others;  // whose they are now: a call without entry time must not cut those
  if (only_return_seen(call))
    for (const LiveInterval& piece : moved) others.push_back(piece.range);
  counts_.spared += others.size();
  for (const AddressRange& part : subtract({old}, make_range_set(std::move(others))))
    cut(part, call.enter_ns, [&](const LiveInterval& piece) { moved.push_back(piece); });
  // What moves keeps its owner; the rest (grown, or mapped before the trace) is the caller's of mremap.
  add(made, !fixed);
  for (LiveInterval& piece : moved) {
    const AddressRange kept = common(piece.range, {from, from + std::min(old_length, new_length)});
    if (kept.size() == 0) continue;
    piece.since_ns = call.exit_ns;
    piece.tid = call.tid;
    add(with_range(piece, {kept.start - from + to, kept.end - from + to}), false);
  }
}

/// Nothing but the heap lies below the break it had: a brk that would unmap an mmap is another call's result.
bool Ledger::owns_mapping_between(std::uint64_t start, std::uint64_t end) const {
  bool mapping = false;
  live_.each_from({start, end}, [&](const LiveInterval& each) {
    mapping = each.number != nr_brk;
    return !mapping;
  });
  return mapping;
}

/// The raw call returns the new break, or the old one when it fails (man 2 brk, "C library/kernel
/// differences").
void Ledger::apply_brk(const CallEvent& call, std::uint32_t stack) {
  const std::uint64_t asked = call.arguments[0];
  const std::uint64_t now = call.result;
  const std::uint64_t before = page_up(break_);
  const std::uint64_t after = page_up(now);
  if (is_syscall_error(now) || after == 0 || (after < before && owns_mapping_between(after, before))) {
    ++counts_.implausible;
    return;
  }
  const bool moved = asked == now && asked != 0;
  if (break_ == 0) {
    if (moved) ++counts_.unknown_break;
  } else if (after > before) {
    // Not by this call when it failed or only asked: then by one that was not captured.
    if (moved) add({{before, after}, stack, call.number, call.exit_ns, call.tid, call.site, false}, true);
  } else if (after < before) {
    // The later exit of two overlapping calls may carry the older break: an older break never takes back what
    // a call that returned meanwhile was given.
    if (call.enter_ns < break_exit_ns_ && call.tid != break_tid_) {
      ++counts_.spared;
      return;
    }
    cut({after, before}, call.enter_ns, forget);
  }
  break_ = now;
  break_exit_ns_ = call.exit_ns;
  break_tid_ = call.tid;
}

void Ledger::add_unsized(const CallEvent& call, std::uint32_t stack) {
  if (!plausible(call.result, page_size_)) {
    ++counts_.implausible;
    return;
  }
  const LiveInterval made{
      {call.result, call.result}, stack, call.number, call.exit_ns, call.tid, call.site, false};
  if (const auto here = unsized_.find(call.result);
      here != unsized_.end() && here->second.number == nr_shmat) {
    ++counts_.conflicts;
    if (undetached_.size() >= displaced_limit) undetached_.erase(undetached_.begin());
    undetached_[call.result] = {here->second, call.exit_ns, call.tid};
  }
  // Rule 1, for the one page that is known to be this call's.
  cut({call.result, call.result + page_size_}, any_time,
      [&](const LiveInterval& displaced) { remember_displaced(displaced, made); });
  unsized_[call.result] = made;
}

void Ledger::apply_shmdt(const CallEvent& call) {
  if (call.result != 0) {  // the result of another call
    ++counts_.implausible;
    return;
  }
  const auto attached = unsized_.find(call.arguments[0]);
  if (attached == unsized_.end()) return;
  const auto foretold = undetached_.find(call.arguments[0]);
  const bool late = foretold != undetached_.end() && only_return_seen(call) &&
                    foretold->second.by != call.tid && call.exit_ns - foretold->second.at_ns <= late_unmap_ns;
  if (foretold != undetached_.end()) undetached_.erase(foretold);
  if (late || attached->second.since_ns > call.enter_ns) {
    ++counts_.spared;
    return;
  }
  unsized_.erase(attached);
}

template <class Taken>
void Ledger::cut(AddressRange range, std::uint64_t entered_ns, const Taken& taken) {
  // What has no known length is unmapped from its start or not at all, in practice.
  for (auto at = unsized_.lower_bound(range.start); at != unsized_.end() && at->first < range.end;)
    at = at->second.since_ns <= entered_ns ? unsized_.erase(at) : std::next(at);
  counts_.spared += live_.cut(range, entered_ns, taken);
}

void Ledger::unmap(AddressRange range, const CallEvent& call) {
  if (displaced_.empty() || !only_return_seen(call)) return cut(range, call.enter_ns, forget);
  for (const AddressRange& part : without_displaced(range, call)) cut(part, call.enter_ns, forget);
}

void Ledger::add(const LiveInterval& interval, bool proves_free) {
  // Whatever is still here is older by exit; it ends where the new one begins.
  cut(interval.range, any_time, [&](const LiveInterval& displaced) {
    if (proves_free) remember_displaced(displaced, interval);
  });
  live_.insert(interval);
}

void Ledger::remember_displaced(const LiveInterval& interval, const LiveInterval& by) {
  ++counts_.conflicts;
  displaced_.push_back({interval, by.since_ns, by.tid});
  if (displaced_.size() > displaced_limit) displaced_.pop_front();
}

Ledger::Pieces Ledger::take_displaced(AddressRange range, const CallEvent& call) {
  Pieces pieces;
  std::erase_if(displaced_, [&](const Displaced& each) {
    const AddressRange part = common(each.interval.range, range);
    const bool overlapped =
        only_return_seen(call) ? call.exit_ns - each.at_ns <= late_unmap_ns : call.enter_ns < each.at_ns;
    if (part.size() == 0 || !overlapped || each.by == call.tid || each.interval.since_ns > call.enter_ns)
      return false;
    pieces.push_back(with_range(each.interval, part));
    return true;
  });
  return pieces;
}

std::vector<AddressRange> Ledger::without_displaced(AddressRange range, const CallEvent& call) {
  std::vector<AddressRange> foretold;
  for (const LiveInterval& piece : take_displaced(range, call)) foretold.push_back(piece.range);
  counts_.spared += foretold.size();
  return subtract({range}, make_range_set(std::move(foretold)));
}

}  // namespace whomap
