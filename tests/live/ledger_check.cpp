// SPDX-License-Identifier: Apache-2.0
// The ledger of a trace against the regions at its end: prints, as JSON, bytes that one has and the other has
// not.
#include <cstdio>
#include <optional>

#include "core/match/event_order.h"
#include "core/match/ledger.h"
#include "core/regions/range_set.h"
#include "core/trace/reader.h"

int main(int count, char** arguments) {
  using namespace whomap;
  if (count != 2) return 2;
  std::optional<Snapshot> before, after;
  TraceVisitor frame;
  frame.snapshot = [&](Snapshot snapshot) { (before ? after : before) = std::move(snapshot); };
  if (!read_trace(arguments[1], frame) || !before || !after) return 1;
  Ledger ledger;
  for (const Region& region : before->regions)
    if (region.vma.name == "[heap]") ledger.set_break(region.vma.end);
  EventOrder order([&](const TraceEvent& event) {
    if (event.call.exit_ns <= after->time_ns) ledger.apply(event.call, event.stack);
  });
  std::uint64_t events = 0;
  TraceVisitor visitor;
  visitor.event = [&](const TraceEvent& event) {
    ++events;
    order.push(event);
  };
  if (!read_trace(arguments[1], visitor)) return 1;
  order.flush();
  std::vector<AddressRange> live;
  for (const auto& [start, interval] : ledger.live()) live.push_back(interval.range);
  std::size_t attached = 0, attached_mapped = 0;
  std::vector<AddressRange> segments;
  for (const auto& [start, interval] : ledger.unsized()) {
    ++attached;
    for (const Region& region : after->regions)
      if (region.vma.start == start) {
        ++attached_mapped;
        segments.push_back(region.vma.range());
      }
  }
  const RangeSet owned = make_range_set(live);
  segments.insert(segments.end(), owned.begin(), owned.end());
  std::printf(
      "{\"events\":%lu,\"intervals\":%zu,\"owned\":%lu,\"owned_not_mapped\":%lu,\"new_not_owned\":%lu,"
      "\"attached\":%zu,\"attached_mapped\":%zu,\"implausible\":%lu}\n",
      events, ledger.live().size(), total_size(owned), total_size(subtract(owned, mapped_addresses(*after))),
      total_size(subtract(newly_mapped(*before, *after), make_range_set(segments))), attached,
      attached_mapped, ledger.counts().implausible);
  return 0;
}
