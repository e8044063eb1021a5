// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/regions/classes.h"
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

void add_whole(Json& record, const Snapshot& snapshot) {
  record["whole"] = true;
  record.update(to_json(snapshot));
  Json& regions = record["regions"];
  for (std::size_t i = 0; i < snapshot.regions.size(); ++i) {
    RegionClass kind = classify(snapshot, i);
    regions[i]["class"] = to_string(kind.kind);
    regions[i]["evidence"] = json_text(kind.evidence);
    if (const auto also = traits(snapshot.regions[i]); !also.empty()) regions[i]["traits"] = also;
  }
}

/// Both ascend, and a start names a region.
void add_changes(Json& record, const Snapshot& before, const Reading& reading) {
  const Snapshot& after = reading.snapshot;
  Json gone = Json::array(), regions = Json::array();
  std::size_t at = 0;
  for (const Region& region : after.regions) {
    for (; at < before.regions.size() && before.regions[at].vma.start < region.vma.start; ++at)
      gone.push_back(hex_string(before.regions[at].vma.start));
    const bool known = at < before.regions.size() && before.regions[at].vma.start == region.vma.start;
    if (!known || !unchanged(before.regions[at], region, reading.depth)) regions.push_back(to_json(region));
    if (known) ++at;
  }
  for (; at < before.regions.size(); ++at) gone.push_back(hex_string(before.regions[at].vma.start));
  if (after.overlaps != 0) record["overlaps"] = after.overlaps;
  if (!after.unparsed.empty()) {
    record["unparsed"] = Json::array();
    for (const std::string& line : after.unparsed) record["unparsed"].push_back(json_text(line));
  }
  if (!gone.empty()) record["gone"] = std::move(gone);
  record["regions"] = std::move(regions);
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
  const Snapshot& snapshot = reading.snapshot;
  Json record{
      {"type", "sample"}, {"depth", name_of(reading.depth)}, {"state", std::string(1, reading.state)}};
  // Whole ones now and then: behind a damaged line a reader waits for the next.
  constexpr std::uint64_t samples_between_whole = 600;
  const bool whole =
      reading.depth != Reading::Depth::status && region_samples_++ % samples_between_whole == 0;
  if (whole) {
    add_whole(record, snapshot);
  } else {
    record["time_ns"] = snapshot.time_ns;
    record["duration_ns"] = snapshot.duration_ns;
    record["totals"] = to_json(snapshot.totals);
    record["threads"] = optional_json(snapshot.threads);
    if (reading.depth != Reading::Depth::status) add_changes(record, before, reading);
  }
  if (reading.depth != Reading::Depth::status) record["mappings"] = snapshot.regions.size();
  return line(record);
}

Result<void> WatchWriter::note(const std::string& text) {
  return line({{"type", "note"}, {"text", json_text(text)}});
}

Result<void> WatchWriter::end(const Json& record) {
  if (auto wrote = line(record); !wrote) return wrote;
  return file_.finish();
}

}  // namespace whomap
