// SPDX-License-Identifier: Apache-2.0
#include "core/regions/pairing.h"

#include <algorithm>
#include <map>

#include "core/regions/range_set.h"

namespace whomap {
namespace {

bool same_permissions(const Vma& left, const Vma& right) {
  return left.readable == right.readable && left.writable == right.writable &&
         left.executable == right.executable;
}

bool accessible(const Vma& vma) {
  return vma.readable || vma.writable || vma.executable;
}

/// Moves: a region that is gone, and one that came, in the same interval.
class Moves {
 public:
  Moves(const Snapshot& before, const std::vector<double>& resident, const Snapshot& after,
        RegionChanges& changes)
      : before_(before), resident_(resident), after_(after), changes_(changes) {}

  void find() {
    std::multimap<std::uint64_t, std::size_t> gone;  // by size
    for (std::size_t j = 0; j < before_.regions.size(); ++j)
      if (changes_.heirs[j] == no_region) gone.emplace(before_.regions[j].vma.size(), j);
    if (gone.empty()) return;
    // Exact sizes first: growing is the exception among moves.
    for (const bool exact : {true, false})
      for (std::size_t i = 0; i < after_.regions.size() && !gone.empty(); ++i)
        if (changes_.origins[i].parts == 0 && !changes_.origins[i].moved) take(i, exact, gone);
  }

 private:
  /// mremap keeps the object and the permissions, and the pages come along.
  [[nodiscard]] bool fits(std::size_t j, std::size_t i) const {
    const Region& was = before_.regions[j];
    const Region& is = after_.regions[i];
    if (!same_object(was.vma, is.vma) || !same_permissions(was.vma, is.vma)) return false;
    return !is.rss || static_cast<double>(*is.rss + is.swap.value_or(0)) >= resident_[j] * 0.9;
  }

  void take(std::size_t i, bool exact, std::multimap<std::uint64_t, std::size_t>& gone) {
    const std::uint64_t size = after_.regions[i].vma.size();
    // A buffer that is grown is at most doubled.
    auto candidate = gone.lower_bound(exact ? size : size / 2);
    const auto end = gone.upper_bound(size);
    auto found = gone.end();
    for (std::size_t tries = 0; candidate != end && tries < 64; ++candidate, ++tries) {
      if (!fits(candidate->second, i)) continue;
      // Of two that would do, neither is known to be the one.
      if (!exact && found != gone.end()) return;
      found = candidate;
      if (exact) break;
    }
    if (found == gone.end()) return;
    const std::size_t j = found->second;
    RegionOrigin& origin = changes_.origins[i];
    origin.continues = j;
    origin.moved = true;
    origin.kept = before_.regions[j].vma.size();
    origin.resident_before = resident_[j];
    changes_.heirs[j] = i;
    changes_.unmapped[j] = 0;
    gone.erase(found);
  }

  const Snapshot& before_;
  const std::vector<double>& resident_;
  const Snapshot& after_;
  RegionChanges& changes_;
};

}  // namespace

bool same_object(const Vma& left, const Vma& right) {
  if (left.shared != right.shared || left.inode != right.inode) return false;
  // A program may name its memory at any time (PR_SET_VMA_ANON_NAME).
  const auto nameable = [](const Vma& vma) { return vma.name.empty() || vma.name.starts_with("[anon"); };
  if (left.inode == 0 && nameable(left) && nameable(right)) return true;
  if (left.device_major != right.device_major || left.device_minor != right.device_minor) return false;
  // A file may be renamed and deleted while it is mapped.
  return left.inode != 0 || left.name == right.name;
}

RegionChanges compare_regions(const Snapshot& before, const std::vector<double>& resident,
                              const Snapshot& after) {
  RegionChanges changes;
  changes.origins.resize(after.regions.size());
  changes.heirs.assign(before.regions.size(), no_region);
  changes.unmapped.resize(before.regions.size());
  std::vector<std::uint64_t> heir_bytes(before.regions.size());
  for (std::size_t j = 0; j < before.regions.size(); ++j) changes.unmapped[j] = before.regions[j].vma.size();

  std::size_t first = 0;
  for (std::size_t i = 0; i < after.regions.size(); ++i) {
    const Vma& is = after.regions[i].vma;
    RegionOrigin& origin = changes.origins[i];
    std::uint64_t most = 0, lowest = is.end, highest = is.start;
    while (first < before.regions.size() && before.regions[first].vma.end <= is.start) ++first;
    for (std::size_t j = first; j < before.regions.size() && before.regions[j].vma.start < is.end; ++j) {
      const Vma& was = before.regions[j].vma;
      const AddressRange both = common(was.range(), is.range());
      const std::uint64_t bytes = both.size();
      ++origin.parts;
      origin.kept += bytes;
      lowest = std::min(lowest, both.start);
      highest = std::max(highest, both.end);
      changes.unmapped[j] -= bytes;
      origin.resident_before +=
          bytes == was.size() ? resident[j]
                              : resident[j] * static_cast<double>(bytes) / static_cast<double>(was.size());
      if (!same_object(was, is)) {
        origin.replaced += bytes;
        continue;
      }
      if (!same_permissions(was, is)) {
        origin.protection += bytes;
        if (!accessible(was) && accessible(is)) origin.made_usable += bytes;
      }
      if (bytes > most) {
        most = bytes;
        origin.largest = j;
      }
      if (bytes > heir_bytes[j]) {
        heir_bytes[j] = bytes;
        changes.heirs[j] = i;
      }
    }
    if (origin.parts != 0) {
      origin.new_below = lowest - is.start;
      origin.new_above = is.end - highest;
    }
  }
  for (std::size_t i = 0; i < after.regions.size(); ++i) {
    RegionOrigin& origin = changes.origins[i];
    if (origin.largest != no_region && changes.heirs[origin.largest] == i) origin.continues = origin.largest;
  }
  Moves(before, resident, after, changes).find();
  return changes;
}

}  // namespace whomap
