// SPDX-License-Identifier: Apache-2.0
#include "core/match/attribution.h"

#include <algorithm>

#include "core/match/quantity.h"
#include "core/match/resident_parts.h"
#include "core/regions/classes.h"
#include "core/regions/range_set.h"

namespace whomap {
namespace {

struct Owned {
  AddressRange range;
  RowKey key;
  std::uint64_t since_ns = 0;
};

std::optional<std::int64_t> difference(std::optional<std::uint64_t> before,
                                       std::optional<std::uint64_t> after) {
  if (!before || !after) return std::nullopt;
  return static_cast<std::int64_t>(*after - *before);
}

/// nullopt where no region's is known.
std::optional<std::uint64_t> lazy_free(const Snapshot& snapshot) {
  std::optional<std::uint64_t> bytes;
  for (const Region& region : snapshot.regions)
    if (region.lazy_free) bytes = bytes.value_or(0) + *region.lazy_free;
  return bytes;
}

const Region* find_region(const Snapshot& snapshot, std::uint64_t address) {
  const auto at =
      std::upper_bound(snapshot.regions.begin(), snapshot.regions.end(), address,
                       [](std::uint64_t wanted, const Region& each) { return wanted < each.vma.end; });
  return at != snapshot.regions.end() && at->vma.start <= address ? &*at : nullptr;
}

/// The range of `set` that holds `address`; empty when none does.
AddressRange range_at(const RangeSet& set, std::uint64_t address) {
  const auto at =
      std::upper_bound(set.begin(), set.end(), address,
                       [](std::uint64_t wanted, const AddressRange& each) { return wanted < each.end; });
  return at != set.end() && at->contains(address) ? *at : AddressRange{address, address};
}

/// Everything that has an owner, ascending and disjoint. The maps tell what no call says: how far a
/// MAP_GROWSDOWN mapping has grown by being touched, how long an attached System V segment is, and how far a
/// mapping of unknown length can reach: the kernel maps downwards, so that what begins above it is older and
/// not its.
std::vector<Owned> owned_ranges(const Ledger& ledger, const Snapshot& after, const RangeSet& fresh,
                                Attribution& result) {
  std::vector<Owned> owned;
  const auto live = ledger.live();
  owned.reserve(live.size() + ledger.unsized().size());
  std::uint64_t previous_end = 0;
  for (const auto& [start, interval] : live) {
    AddressRange range = interval.range;
    if (interval.grows_down) {
      const Region* const region = find_region(after, range.start);
      if (region != nullptr) range.start = std::min(range.start, std::max(region->vma.start, previous_end));
    }
    previous_end = range.end;
    owned.push_back({range, {interval.stack, interval.number}, interval.since_ns});
  }
  const auto live_count = static_cast<std::ptrdiff_t>(owned.size());
  for (auto at = ledger.unsized().begin(); at != ledger.unsized().end(); ++at) {
    const auto& [start, interval] = *at;
    constexpr std::int64_t nr_shmat = 30;
    const bool segment = interval.number == nr_shmat;
    const Region* const region = find_region(after, start);
    if (segment && (region == nullptr || region->vma.start != start)) {
      ++result.unsized_segments;
      continue;
    }
    if (region == nullptr) continue;
    std::uint64_t end = region->vma.end;
    if (!segment) {
      ++result.unsized_calls;
      end = std::min(end, range_at(fresh, start).end);
      if (const auto next = std::next(at); next != ledger.unsized().end()) end = std::min(end, next->first);
    }
    // Not into what a later call owns.
    const auto next =
        std::lower_bound(owned.begin(), owned.begin() + live_count, start,
                         [](const Owned& each, std::uint64_t from) { return each.range.end <= from; });
    if (next != owned.begin() + live_count) end = std::min(end, std::max(start, next->range.start));
    if (end > start) owned.push_back({{start, end}, {interval.stack, interval.number}, interval.since_ns});
  }
  std::sort(owned.begin(), owned.end(),
            [](const Owned& left, const Owned& right) { return left.range.start < right.range.start; });
  return owned;
}

std::string why_unexplained(RegionKind kind) {
  switch (kind) {
    case RegionKind::heap: return "[heap] grown by brk calls that were not captured";
    case RegionKind::stack: return "the main thread's stack, grown by being used";
    case RegionKind::grows_down: return "a MAP_GROWSDOWN mapping, grown by being used";
    case RegionKind::file: return "file mappings that no captured call made";
    case RegionKind::shared_memory:
    case RegionKind::memfd: return "shared memory that no captured call mapped";
    case RegionKind::device: return "device mappings that no captured call made";
    case RegionKind::reservation: return "inaccessible reservations that no captured call made";
    default: return "anonymous memory that no captured call mapped";
  }
}

std::size_t part_of_time(std::uint64_t since_ns, const Snapshot& before, const Snapshot& after) {
  constexpr std::size_t parts = std::tuple_size_v<GrowthByTime>;
  if (since_ns <= before.time_ns || after.time_ns <= before.time_ns) return 0;
  const double at =
      static_cast<double>(since_ns - before.time_ns) / static_cast<double>(after.time_ns - before.time_ns);
  return std::min(parts - 1, static_cast<std::size_t>(at * parts));
}

/// Walks owned ranges, new addresses and regions side by side: all are ascending and disjoint.
class Sweep {
 public:
  Sweep(const Snapshot& before, const Snapshot& after, RangeSet fresh, std::vector<Owned> owned,
        Attribution& result)
      : before_(before),
        after_(after),
        owned_(std::move(owned)),
        made_usable_(made_usable(before, after)),
        new_(std::move(fresh)),
        result_(result) {}

  void run() {
    result_.growth.mapped_bytes = total_size(new_);
    for (std::size_t i = 0; i < after_.regions.size(); ++i) region(i);
    std::sort(result_.regions.begin(), result_.regions.end(),
              [](const RegionAnswer& left, const RegionAnswer& right) {
                if (left.size_delta != right.size_delta) return left.size_delta > right.size_delta;
                return left.rss_delta.value_or(0) > right.rss_delta.value_or(0);
              });
    for (const auto& [reason, bytes] : unexplained_) result_.unexplained.push_back({reason, bytes});
    std::sort(result_.unexplained.begin(), result_.unexplained.end(),
              [](const Unexplained& left, const Unexplained& right) { return left.bytes > right.bytes; });
  }

 private:
  struct Piece {
    RowKey key;
    std::uint64_t bytes = 0;
    std::uint64_t resident = 0;  ///< of them, page by page
    bool exact = true;           ///< all of them were looked at
  };

  void region(std::size_t index) {
    const Region& region = after_.regions[index];
    const AddressRange range = region.vma.range();
    std::uint64_t new_bytes = 0;
    std::uint64_t explained = 0;
    std::uint64_t opened = 0;  ///< unexplained, in addresses that were made usable
    std::vector<Piece> pieces;
    while (new_at_ < new_.size() && new_[new_at_].end <= range.start) ++new_at_;
    for (std::size_t i = new_at_; i < new_.size() && new_[i].start < range.end; ++i) {
      const AddressRange fresh = common(new_[i], range);
      new_bytes += fresh.size();
      opened += overlap(made_usable_, fresh);
      while (owned_at_ < owned_.size() && owned_[owned_at_].range.end <= fresh.start) ++owned_at_;
      for (std::size_t k = owned_at_; k < owned_.size() && owned_[k].range.start < fresh.end; ++k) {
        const AddressRange both = common(owned_[k].range, fresh);
        const std::uint64_t bytes = both.size();
        opened -= overlap(made_usable_, both);
        explained += bytes;
        RowGrowth& row = result_.rows[owned_[k].key];
        row.growth_bytes += bytes;
        row.by_time[part_of_time(owned_[k].since_ns, before_, after_)] += bytes;
        if (last_counted_ != k + 1) ++row.live_calls;
        last_counted_ = k + 1;
        if (pieces.empty() || pieces.back().key != owned_[k].key) pieces.push_back({owned_[k].key});
        Piece& piece = pieces.back();
        piece.bytes += bytes;
        piece.exact = piece.exact && after_.pages && overlap(after_.pages->looked_at, both) == bytes;
        if (after_.pages) piece.resident += overlap(after_.pages->resident, both);
      }
    }
    const std::optional<double> before_rss = resident_before(before_, range, before_at_);
    spread_resident(region, before_rss, new_bytes, pieces);
    add_region(index, before_rss, new_bytes, explained, pieces);
    if (new_bytes == 0) return;
    result_.growth.explained_bytes += explained;
    result_.growth.unexplained_bytes += new_bytes - explained;
    const RegionKind kind = classify(after_, index).kind;
    const std::uint64_t rest = new_bytes - explained - opened;
    if (rest > 0) unexplained_[why_unexplained(kind)] += rest;
    if (opened > 0) unexplained_["opened by mprotect inside reservations from before the trace"] += opened;
    result_.made_usable_bytes += opened;
    const Vma& vma = region.vma;
    if (!vma.readable && !vma.writable && !vma.executable)
      result_.inaccessible_bytes += new_bytes;
    else if (holds_file_pages(region))
      result_.file_bytes += new_bytes;
  }

  /// Page by page where the pages are known; else what became resident in the region is taken to lie in its
  /// new part, evenly.
  void spread_resident(const Region& region, std::optional<double> before_rss, std::uint64_t new_bytes,
                       const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      RowGrowth& row = result_.rows[piece.key];
      if (piece.exact) {
        if (row.resident_bytes) *row.resident_bytes += static_cast<double>(piece.resident);
        continue;
      }
      row.resident_exact = false;
      if (!region.rss || !before_rss) {
        row.resident_bytes.reset();
        continue;
      }
      const auto fresh = static_cast<double>(new_bytes);
      const double resident = std::clamp(static_cast<double>(*region.rss) - *before_rss, 0.0, fresh);
      if (row.resident_bytes) *row.resident_bytes += resident * static_cast<double>(piece.bytes) / fresh;
    }
  }

  void add_region(std::size_t index, std::optional<double> before_rss, std::uint64_t new_bytes,
                  std::uint64_t explained, const std::vector<Piece>& pieces) {
    const Region& region = after_.regions[index];
    RegionAnswer answer;
    if (region.rss && before_rss)
      answer.rss_delta = static_cast<std::int64_t>(*region.rss - whole_bytes(*before_rss));
    if (new_bytes == 0 && answer.rss_delta.value_or(0) <= 0) return;
    const RegionClass kind = classify(after_, index);
    answer.range = region.vma.range();
    answer.name = region.vma.name;
    answer.kind = to_string(kind.kind);
    answer.evidence = kind.evidence;
    answer.size_delta = static_cast<std::int64_t>(new_bytes);
    answer.explained_bytes = explained;
    for (const Piece& piece : pieces) answer.stacks.push_back(piece.key.stack);
    std::sort(answer.stacks.begin(), answer.stacks.end());
    answer.stacks.erase(std::unique(answer.stacks.begin(), answer.stacks.end()), answer.stacks.end());
    result_.regions.push_back(std::move(answer));
  }

  const Snapshot& before_;
  const Snapshot& after_;
  std::vector<Owned> owned_;
  RangeSet made_usable_;
  RangeSet new_;  ///< newly mapped or made usable
  Attribution& result_;
  std::size_t new_at_ = 0, owned_at_ = 0, before_at_ = 0;
  std::size_t last_counted_ = 0;
  std::map<std::string, std::uint64_t> unexplained_;
};

}  // namespace

std::map<RowKey, RowGrowth> live_only(const Ledger& ledger, const Snapshot* after) {
  const RangeSet mapped = after != nullptr ? mapped_addresses(*after) : RangeSet{};
  std::map<RowKey, RowGrowth> rows;
  for (const auto& [start, interval] : ledger.live()) {
    RowGrowth& row = rows[{interval.stack, interval.number}];
    row.live_bytes += after != nullptr ? overlap(mapped, interval.range) : interval.range.size();
    row.resident_bytes.reset();
  }
  return rows;
}

Attribution attribute(const Snapshot& before, const Snapshot& after, const Ledger& ledger) {
  Attribution result;
  const MemoryTotals& was = before.totals;
  const MemoryTotals& is = after.totals;
  Growth& growth = result.growth;
  growth.rss_anon = difference(was.rss_anon, is.rss_anon);
  growth.rss_file = difference(was.rss_file, is.rss_file);
  growth.rss_shmem = difference(was.rss_shmem, is.rss_shmem);
  growth.swap = difference(was.swap, is.swap);
  growth.page_tables = difference(was.page_tables, is.page_tables);
  growth.lazy_free = difference(lazy_free(before), lazy_free(after));
  growth.unmapped_bytes = total_size(no_longer_mapped(before, after));
  RangeSet fresh = newly_mapped(before, after);
  const RangeSet opened = made_usable(before, after);
  fresh.insert(fresh.end(), opened.begin(), opened.end());
  fresh = make_range_set(std::move(fresh));
  auto owned = owned_ranges(ledger, after, fresh, result);
  for (const Owned& each : owned) result.rows[each.key].live_bytes += each.range.size();
  Sweep(before, after, fresh, std::move(owned), result).run();
  result.has_jvm = std::any_of(after.regions.begin(), after.regions.end(),
                               [](const Region& region) { return region.vma.name.ends_with("/libjvm.so"); });
  double explained = 0;
  for (const auto& [key, row] : result.rows) explained += row.resident_bytes.value_or(0);
  if (growth.rss_anon && growth.rss_file && growth.rss_shmem) {
    ResidentChange change = resident_parts(before, after, fresh, explained,
                                           *growth.rss_anon + *growth.rss_file + *growth.rss_shmem);
    result.resident = std::move(change.parts);
    result.touched_older_bytes = change.touched_older;
  }
  return result;
}

}  // namespace whomap
