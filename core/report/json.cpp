// SPDX-License-Identifier: Apache-2.0
// The whomap-report format. What is not known is null: 0 is a measured nothing.
#include <cmath>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/process/syscalls.h"
#include "core/report/report.h"
#include "core/report/watch_json.h"

namespace whomap {
namespace {

using Json = nlohmann::ordered_json;

Json known_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(json_text(text));
}
Json known_text(const std::optional<std::string>& text) {
  return text ? Json(json_text(*text)) : Json(nullptr);
}

/// JSON has no infinities, and no reader needs more than microseconds and hundredths of a percent.
Json rounded(double value, double unit) {
  return std::isfinite(value) ? Json(std::round(value / unit) * unit) : Json(nullptr);
}

Json target_json(const Answer& answer) {
  const TargetIdentity& target = answer.header.target;
  return {{"pid", target.pid},
          {"start_time", target.start_time},
          {"exe", known_text(target.exe)},
          {"threads", optional_json(answer.threads)}};
}

Json trace_json(const Answer& answer) {
  const TraceEnd& totals = answer.totals;
  const auto total = [&](std::uint64_t value) { return answer.complete ? Json(value) : Json(nullptr); };
  const bool timed = answer.header.clock != order_clock;
  Json trace{{"engine", known_text(answer.header.engine)},
             {"seconds", timed ? Json(std::round(answer.seconds * 1e6) / 1e6) : Json(nullptr)},
             {"stopped_ms", optional_json(totals.stopped_ms)},
             {"longest_stop_ms", optional_json(totals.longest_stop_ms)},
             {"hits", total(totals.hits)},
             {"events", answer.events},
             {"failed_calls", answer.failed_calls},
             {"lost", optional_json(answer.lost)},
             {"mispaired", total(totals.mispaired)},
             {"predicted_slowdown", optional_json(totals.predicted_slowdown)}};
  if (totals.left_out != 0) trace["left_out"] = totals.left_out;  // only where it was asked for
  return trace;
}

Json growth_json(const Growth& growth) {
  const auto mapped = [&](std::uint64_t value) { return growth.known ? Json(value) : Json(nullptr); };
  return {{"rss_anon_bytes", optional_json(growth.rss_anon)},
          {"rss_file_bytes", optional_json(growth.rss_file)},
          {"rss_shmem_bytes", optional_json(growth.rss_shmem)},
          {"swap_bytes", optional_json(growth.swap)},
          {"page_table_bytes", optional_json(growth.page_tables)},
          {"mapped_bytes", mapped(growth.mapped_bytes)},
          {"explained_bytes", mapped(growth.explained_bytes)},
          {"unexplained_bytes", mapped(growth.unexplained_bytes)},
          {"unmapped_bytes", mapped(growth.unmapped_bytes)},
          {"lazy_free_bytes", optional_json(growth.lazy_free)}};
}

Json frame_json(const Frame& frame) {
  Json json{{"module", known_text(frame.module)}, {"build_id", known_text(frame.build_id)},
            {"offset", hex_string(frame.offset)}, {"function", known_text(frame.function)},
            {"file", known_text(frame.file)},     {"line", optional_json(frame.line)},
            {"inlined", frame.inlined},           {"guessed", frame.guessed}};
  if (frame.run_time) json["run_time"] = true;
  return json;
}

/// How the number of the site's system call is known.
std::string dispatch(const Site& site) {
  switch (site.kind) {
    case NumberKind::constant: return "constant";
    case NumberKind::caller_constant: return "caller-constant";
    case NumberKind::variable: return "variable";
  }
  return {};
}

Json site_json(const Answer& answer, std::uint32_t id) {
  // Ids are indices, but a trace is a file like any other.
  const std::vector<Site>& sites = answer.header.plan.sites;
  if (id >= sites.size()) return nullptr;
  const Site& site = sites[id];
  return {{"module", known_text(site.module)},
          {"symbol", known_text(site.symbol)},
          {"offset", hex_string(site.syscall_offset)},
          {"dispatch", dispatch(site)},
          {"dispatcher", known_text(site.dispatcher)},
          {"symbol_offset", site.symbol.empty() ? Json(nullptr) : Json(hex_string(site.symbol_offset))}};
}

Json advice_json(const std::vector<Advice>& known) {
  Json list = Json::array();
  for (const Advice& advice : known)
    list.push_back({{"signature", json_text(advice.signature)},
                    {"cause", json_text(advice.cause)},
                    {"remedy", known_text(advice.remedy)},
                    {"hazard", known_text(advice.hazard)},
                    {"source", json_text(advice.source)},
                    {"certainty", advice.certainty}});
  return list;
}

Json stack_json(const Answer& answer, const StackAnswer& row) {
  const bool known = answer.growth.known;
  const MemorySyscall* const call = memory_syscall(row.syscall);
  Json json{{"id", row.stack.id},
            {"syscall", call != nullptr ? Json(call->name) : Json(fmt::format("{}", row.syscall))},
            {"live_bytes", row.live_bytes},
            {"resident_bytes", optional_json(row.resident_bytes)},
            {"growth_bytes", known ? Json(row.growth_bytes) : Json(nullptr)},
            {"share", known ? rounded(row.share, 1e-6) : Json(nullptr)},
            {"count", row.count},
            {"bytes_per_minute",
             known && answer.seconds > 0 ? Json(std::round(row.bytes_per_minute)) : Json(nullptr)},
            {"class", known_text(row.verdict)},
            {"site", site_json(answer, row.site)},
            {"frames", Json::array()},
            {"truncated", known_text(row.stack.truncated)},
            {"advice", advice_json(row.advice)},
            {"failed", row.failed},
            {"mapped_bytes", row.mapped_bytes},
            {"unmapped_bytes", row.unmapped_bytes},
            {"threads", row.threads},
            {"resident_exact", row.resident_exact},
            {"first_ns", row.first_ns},
            {"last_ns", row.last_ns},
            {"culprit_frame", row.culprit ? Json(row.culprit->frame) : Json(nullptr)}};
  for (const Frame& frame : row.stack.frames) json["frames"].push_back(frame_json(frame));
  return json;
}

Json watched_json(const WatchedGrowth& watched) {
  return {{"file", known_text(watched.name)},
          {"seconds", rounded(watched.seconds, 1e-3)},
          {"readings", watched.snapshots},
          {"resident", shape_json(watched.resident)},
          {"mapped_bytes", watched.mapped_bytes},
          {"in_explained_regions_bytes", watched.in_explained_regions},
          {"seconds_after", optional_json(watched.seconds_after)},
          {"still_mapped_bytes", watched.seconds_after ? Json(watched.still_mapped) : Json(nullptr)}};
}

Json region_json(const RegionAnswer& region) {
  Json json{{"start", hex_string(region.range.start)},
            {"end", hex_string(region.range.end)},
            {"class", region.kind},
            {"evidence", json_text(region.evidence)},
            {"size_delta", region.size_delta},
            {"rss_delta", optional_json(region.rss_delta)},
            {"explained_bytes", region.explained_bytes},
            {"stacks", region.stacks},
            {"name", known_text(region.name)},
            {"advice", advice_json(region.advice)}};
  if (region.watched)
    json["watched"] = {{"seconds", rounded(region.watched->seconds, 1e-3)},
                       {"size_delta", rounded(region.watched->size_delta, 1)},
                       {"resident_delta", rounded(region.watched->resident_delta, 1)},
                       {"shape", shape_json(region.watched->shape)}};
  return json;
}

}  // namespace

Json to_json(const Answer& answer) {
  Json json{
      {"format", "whomap-report"},
      {"version", 1},
      {"target", target_json(answer)},
      {"trace", trace_json(answer)},
      {"growth", growth_json(answer.growth)},
      {"verdict", {{"class", known_text(answer.verdict_class)}, {"text", json_text(answer.verdict_text)}}},
      {"stacks", Json::array()},
      {"regions", Json::array()},
      {"unexplained", Json::array()},
      {"resident", Json::array()},
      {"notes", Json::array()},
      {"advice", advice_json(answer.advice)}};
  if (answer.watched) json["watched"] = watched_json(*answer.watched);
  for (const StackAnswer& row : answer.stacks) json["stacks"].push_back(stack_json(answer, row));
  for (const RegionAnswer& region : answer.regions) json["regions"].push_back(region_json(region));
  for (const Unexplained& part : answer.unexplained)
    json["unexplained"].push_back({{"reason", json_text(part.reason)}, {"bytes", part.bytes}});
  for (const ResidentPart& part : answer.resident)
    json["resident"].push_back({{"where", part.where}, {"bytes", part.bytes}});
  for (const std::string& note : answer.notes) json["notes"].push_back(json_text(note));
  return json;
}

std::string to_json_text(const Answer& answer) {
  return to_json(answer).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whomap
