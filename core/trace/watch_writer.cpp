// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_fields.h"
#include "core/regions/classes.h"
#include "core/trace/record_in_pieces.h"
#include "core/trace/watch_file.h"

namespace whomap {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of(Reading::Depth depth) {
  switch (depth) {
    case Reading::Depth::status: return "status";
    case Reading::Depth::maps: return "maps";
    case Reading::Depth::smaps: return "smaps";
  }
  return {};
}

/// A reading of maps knows nothing of sizes, so only the mapping itself is compared there.
bool unchanged(const Region& was, const Region& is, Reading::Depth depth) {
  if (was.vma != is.vma) return false;
  return depth == Reading::Depth::maps ||
         (was.rss == is.rss && was.pss == is.pss && was.anonymous == is.anonymous && was.swap == is.swap &&
          was.lazy_free == is.lazy_free && was.anon_huge_pages == is.anon_huge_pages &&
          was.hugetlb == is.hugetlb && was.vm_flags == is.vm_flags);
}

Json classified(const Snapshot& snapshot, std::size_t index) {
  Json region = to_json(snapshot.regions[index]);
  RegionClass kind = classify(snapshot, index);
  region["class"] = to_string(kind.kind);
  region["evidence"] = json_text(kind.evidence);
  if (const auto also = traits(snapshot.regions[index]); !also.empty()) region["traits"] = also;
  return region;
}

/// Both ascend, and a start names a region.
void add_changes(RecordInPieces& record, const Snapshot& before, const Reading& reading) {
  std::vector<const Region*> gone, changed;
  auto was = before.regions.begin();
  for (const Region& region : reading.snapshot.regions) {
    for (; was != before.regions.end() && was->vma.start < region.vma.start; ++was) gone.push_back(&*was);
    const bool known = was != before.regions.end() && was->vma.start == region.vma.start;
    if (!known || !unchanged(*was, region, reading.depth)) changed.push_back(&region);
    if (known) ++was;
  }
  for (; was != before.regions.end(); ++was) gone.push_back(&*was);
  if (!gone.empty()) record.array("gone");
  for (const Region* const region : gone) record.item(hex_string(region->vma.start));
  record.array("regions");
  for (const Region* const region : changed) record.item(to_json(*region));
}

}  // namespace

Result<WatchWriter> WatchWriter::create(const std::string& path, bool overwrite, const WatchHeader& header) {
  auto file = OutputFile::create(path, overwrite);
  if (!file) return tl::make_unexpected(file.error());
  WatchWriter writer(std::move(*file));
  const TargetIdentity& target = header.target;
  auto wrote = writer.line({{"format", "whomap-watch"},
                            {"version", watch_version},
                            {"tool_version", json_text(header.tool_version)},
                            {"clock", "CLOCK_MONOTONIC"},
                            {"start_ns", header.start_ns},
                            {"interval_seconds", header.interval_seconds},
                            {"max_map_count", optional_json(header.mapping_limit)},
                            {"target",
                             {{"pid", target.pid},
                              {"start_time", target.start_time},
                              {"exe", json_text(target.exe)},
                              {"comm", json_text(target.comm)}}}});
  if (!wrote) return tl::make_unexpected(wrote.error());
  return writer;
}

Result<void> WatchWriter::line(const Json& record) {
  if (auto wrote = file_.write(dump_line(record) + "\n"); !wrote) return wrote;
  return file_.flush();
}

Result<void> WatchWriter::sample(const Snapshot& before, const Reading& reading) {
  const Snapshot& after = reading.snapshot;
  const bool with_regions = reading.depth != Reading::Depth::status;
  // Whole ones now and then: behind a damaged line a reader waits for the next.
  constexpr std::uint64_t samples_between_whole = 600;
  const bool whole = with_regions && region_samples_++ % samples_between_whole == 0;
  Json head{{"type", "sample"}, {"depth", name_of(reading.depth)}, {"state", std::string(1, reading.state)}};
  if (whole) {
    head["whole"] = true;
    head.update(to_json_without_regions(after));
  } else {
    head["time_ns"] = after.time_ns;
    head["duration_ns"] = after.duration_ns;
    head["totals"] = to_json(after.totals);
    head["threads"] = optional_json(after.threads);
    if (after.overlaps != 0) head["overlaps"] = after.overlaps;
    for (const std::string& text : after.unparsed) head["unparsed"].push_back(json_text(text));
  }
  if (reading.unchanged) head["unchanged"] = name_of(*reading.unchanged);
  if (!with_regions) return line(head);
  head["mappings"] = after.regions.size();
  RecordInPieces record(file_, head);
  if (whole) {
    record.array("regions");
    for (std::size_t i = 0; i < after.regions.size(); ++i) record.item(classified(after, i));
  } else {
    add_changes(record, before, reading);
  }
  if (auto wrote = record.finish(); !wrote) return wrote;
  return file_.flush();
}

Result<void> WatchWriter::note(const std::string& text) {
  return line({{"type", "note"}, {"text", json_text(text)}});
}

Result<void> WatchWriter::end(const Json& record) {
  if (auto wrote = line(record); !wrote) return wrote;
  return file_.finish();
}

}  // namespace whomap
