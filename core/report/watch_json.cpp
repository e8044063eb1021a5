// SPDX-License-Identifier: Apache-2.0
#include "core/report/watch_json.h"

#include <cmath>

#include <fmt/format.h>

#include "core/base/json_fields.h"

namespace whomap {
namespace {

using Json = nlohmann::ordered_json;

Json whole(double bytes) {
  return std::isfinite(bytes) ? Json(std::llround(bytes)) : Json(nullptr);
}

Json reading_json(const ReadingCost& cost) {
  return {{"count", cost.count}, {"seconds", cost.seconds}, {"longest_seconds", cost.longest_seconds}};
}

Json row_json(const WatchRow& row) {
  Json json{{"class", to_string(row.kind)}, {"evidence", json_text(row.evidence)}, {"count", row.count}};
  if (row.names > 1) json["names"] = row.names;
  if (!row.name.empty()) json["name"] = json_text(row.name);
  if (row.range) {
    json["start"] = hex_string(row.range->start);
    json["end"] = hex_string(row.range->end);
  }
  json["size"] = row.size;
  json["resident"] = whole(row.resident);
  json["size_growth"] = whole(row.size_growth);
  json["resident_growth"] = whole(row.resident_growth);
  json["first_seen_ns"] = row.first_seen_ns;
  json["shape_of"] = row.shape_is_of_size ? "size" : "resident";
  json["shape"] = shape_json(row.shape);
  if (!row.traits.empty()) json["traits"] = row.traits;
  if (const std::string how = changes_text(row); !how.empty()) json["changes"] = how;
  return json;
}

}  // namespace

Json shape_json(const GrowthShape& shape) {
  constexpr double per_minute = 60;
  Json json{{"pattern", to_string(shape.pattern)},
            {"change_bytes", whole(shape.change)},
            {"seconds", std::round(shape.seconds * 1e3) / 1e3},
            {"bytes_per_minute",
             shape.pattern == GrowthPattern::unknown ? Json(nullptr) : whole(shape.rate() * per_minute)},
            {"low_per_minute", shape.slope ? whole(shape.slope->low * per_minute) : Json(nullptr)},
            {"high_per_minute", shape.slope ? whole(shape.slope->high * per_minute) : Json(nullptr)}};
  if (shape.pattern == GrowthPattern::plateau)
    json["quiet_seconds"] = std::round(shape.quiet_seconds * 1e3) / 1e3;
  if (!shape.steps.empty()) {
    json["steps"] = Json::array();
    for (const GrowthStep& step : shape.steps)
      json["steps"].push_back({{"time_ns", step.time_ns}, {"bytes", whole(step.bytes)}});
  }
  return json;
}

Json watch_end_record(const WatchView& view, const WatchEnding& ending) {
  const WatchTotals& totals = view.totals;
  Json json{{"type", "end"},
            {"reason", ending.reason},
            {"end_ns", view.last_ns},
            {"seconds", std::round(view.seconds * 1e3) / 1e3},
            {"headline", watch_headline(view)},
            {"totals",
             {{"rss_anon", shape_json(totals.rss_anon)},
              {"rss_file", shape_json(totals.rss_file)},
              {"rss_shmem", shape_json(totals.rss_shmem)},
              {"swap", shape_json(totals.swap)},
              {"page_tables", shape_json(totals.page_tables)},
              {"mapped", shape_json(totals.mapped)}}},
            {"mappings", view.regions},
            {"max_map_count", optional_json(ending.mapping_limit)},
            {"threads", optional_json(view.threads)},
            {"cost",
             {{"cpu_seconds", ending.cost.cpu_seconds},
              {"status", reading_json(ending.cost.status)},
              {"maps", reading_json(ending.cost.maps)},
              {"smaps", reading_json(ending.cost.smaps)},
              {"put_off", ending.cost.put_off}}},
            {"rows", Json::array()},
            {"notes", Json::array()}};
  for (const WatchRow& row : view.rows) json["rows"].push_back(row_json(row));
  for (const std::string& note : ending.notes) json["notes"].push_back(json_text(note));
  return json;
}

}  // namespace whomap
