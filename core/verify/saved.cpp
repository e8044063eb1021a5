// SPDX-License-Identifier: Apache-2.0
#include "core/verify/saved.h"

#include <cmath>

#include "core/base/json_fields.h"
#include "core/verify/words.h"

namespace whomap {
namespace {

using Json = nlohmann::ordered_json;

Json known_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(json_text(text));
}

/// JSON has no infinities; whole bytes are what a reader wants.
Json whole(double value) {
  return std::isfinite(value) ? Json(std::round(value)) : Json(nullptr);
}
Json whole(const std::optional<double>& value) {
  return value ? whole(*value) : Json(nullptr);
}
Json microseconds(double value) {
  return std::round(value * 1e6) / 1e6;
}

Json measurement_json(const Measurement& at) {
  Json members = Json::array();
  for (const TreeMember& member : at.members)
    members.push_back({{"pid", member.pid},
                       {"start_time", member.start_time},
                       {"rss_anon_bytes", optional_json(member.rss_anon)}});
  return {{"seconds", microseconds(at.seconds)},
          {"start_time", at.start_time},
          {"rss_bytes", optional_json(at.memory.rss)},
          {"rss_anon_bytes", optional_json(at.memory.rss_anon)},
          {"rss_file_bytes", optional_json(at.memory.rss_file)},
          {"rss_shmem_bytes", optional_json(at.memory.rss_shmem)},
          {"swap_bytes", optional_json(at.memory.swap)},
          {"page_table_bytes", optional_json(at.memory.page_tables)},
          {"lazy_free_bytes", optional_json(at.memory.lazy_free)},
          {"mappings", optional_json(at.memory.mappings)},
          {"threads", optional_json(at.memory.threads)},
          {"held_bytes", optional_json(at.memory.held)},
          {"cpu_seconds", at.cpu_seconds ? microseconds(*at.cpu_seconds) : Json(nullptr)},
          {"succeeded", at.succeeded},
          {"failed", at.failed},
          {"processes", at.processes},
          {"most_mappings", optional_json(at.most_mappings)},
          {"members", members}};
}

Json exercise_json(const ExerciseRecord& exercise) {
  if (exercise.command.empty()) return nullptr;
  return {{"command", json_text(exercise.command)},
          {"count", exercise.count},
          {"operations_per_run", exercise.operations_per_run},
          {"succeeded", exercise.succeeded},
          {"failed", exercise.failed},
          {"timed_out", exercise.timed_out},
          {"first_failure", known_text(exercise.first_failure)}};
}

Json traced_json(const std::optional<EffectReport>& traced) {
  if (!traced) return nullptr;
  Json findings = Json::array();
  for (const EffectFinding& finding : traced->findings) {
    Json examples = Json::array();
    for (const std::string& name : finding.examples) examples.push_back(json_text(name));
    findings.push_back({{"kind", word(finding.kind)},
                        {"expression", json_text(finding.expression)},
                        {"stacks", finding.stacks},
                        {"calls", finding.calls},
                        {"growth_bytes", optional_json(finding.growth_bytes)},
                        {"examples", examples}});
  }
  const TraceSight& sight = traced->sight;
  return {{"seconds", optional_json(sight.seconds)},
          {"events", optional_json(sight.events)},
          {"lost", optional_json(sight.lost)},
          {"stacks", sight.stacks},
          {"truncated", sight.truncated},
          {"findings", findings}};
}

Json notes_json(const std::vector<std::string>& notes) {
  Json json = Json::array();
  for (const std::string& note : notes) json.push_back(json_text(note));
  return json;
}

Json verdict_json(const Verdict& verdict) {
  return {{"class", name_of(verdict.kind)},
          {"text", json_text(verdict.text)},
          {"remedy", known_text(verdict.remedy)}};
}

Json judgement_json(const Judgement& judgement) {
  constexpr double seconds_per_minute = 60;
  Json json = verdict_json(judgement.verdict);
  json["operations"] = optional_json(judgement.all_operations);
  json["cpu_seconds"] = judgement.cpu_seconds ? microseconds(*judgement.cpu_seconds) : Json(nullptr);
  json["swap_change_bytes"] = whole(judgement.swap_change);
  json["lazy_free_change_bytes"] = whole(judgement.lazy_free_change);
  json["trends"] = Json::array();
  for (const auto& [kind, trend] : judgement.trends) {
    const bool known = trend.state != TrendState::unknown;
    const auto figure = [&](double value) { return known ? whole(value) : Json(nullptr); };
    Json interval = nullptr;
    if (trend.slope)
      interval = Json::array(
          {whole(trend.slope->low * seconds_per_minute), whole(trend.slope->high * seconds_per_minute)});
    json["trends"].push_back({{"kind", name_of(kind)},
                              {"state", word(trend.state)},
                              {"doubt", trend.doubt == Doubt::none ? Json(nullptr) : Json(word(trend.doubt))},
                              {"change_bytes", figure(trend.change)},
                              {"warm_up_bytes", figure(trend.warm_up)},
                              {"fall_bytes", figure(trend.fall)},
                              {"bytes_per_minute", figure(trend.rate() * seconds_per_minute)},
                              {"interval_bytes_per_minute", interval}});
  }
  json["notes"] = notes_json(judgement.notes);
  return json;
}

Json variant_json(const VariantResult& variant, const Judgement& judgement) {
  const VerifyRun& run = variant.run;
  Json points = Json::array();
  Json readings = Json::array();
  for (const Measurement& at : run.measurements)
    (at.point ? points : readings).push_back(measurement_json(at));
  return {{"target",
           {{"pid", run.target.pid},
            {"start_time", run.target.start_time},
            {"exe", known_text(run.target.exe)},
            {"comm", json_text(run.target.comm)}}},
          {"command", known_text(run.command)},
          {"tree", run.tree},
          {"samples", run.samples},
          {"interval_seconds", run.interval_seconds},
          {"max_map_count", optional_json(run.max_map_count)},
          {"exercise", exercise_json(run.exercise)},
          {"ending", word(run.ending)},
          {"ending_text", known_text(run.ending_text)},
          {"points", points},
          {"readings", readings},
          {"notes", notes_json(run.notes)},
          {"traced", traced_json(variant.effects)},
          {"trace_problem", known_text(variant.trace_problem)},
          {"judgement", judgement_json(judgement)}};
}

}  // namespace

Json to_json(const VerifyInput& input, const VerifyOutcome& outcome, const JudgeLimits& limits) {
  Json control_problem = nullptr;
  if (input.control_problem) control_problem = json_text(to_line(*input.control_problem));
  const auto other = [](const std::optional<VariantResult>& variant,
                        const std::optional<Judgement>& judgement) {
    return variant && judgement ? variant_json(*variant, *judgement) : Json(nullptr);
  };
  Json effects = Json::array();
  for (std::size_t i = 0; i < outcome.effects.size(); ++i) {
    const EffectFinding& finding = input.subject.effects->findings[i];
    effects.push_back({{"kind", word(finding.kind)},
                       {"expression", json_text(finding.expression)},
                       {"state", word(outcome.effects[i].state)},
                       {"text", json_text(outcome.effects[i].text)},
                       {"remedy", known_text(outcome.effects[i].remedy)}});
  }
  Json verdict = verdict_json(outcome.verdict);
  verdict["exit_status"] = static_cast<int>(exit_status(outcome.verdict.kind));
  constexpr double seconds_per_minute = 60;
  return {{"format", "whomap-verify"},
          {"version", 1},
          {"verdict", verdict},
          {"limits",
           {{"max_delta_bytes", whole(limits.growth.max_delta)},
            {"max_bytes_per_minute", whole(limits.growth.max_rate * seconds_per_minute)},
            {"least_operations", limits.least_operations}}},
          {"subject", variant_json(input.subject, outcome.subject)},
          {"control", other(input.control, outcome.control)},
          {"control_problem", control_problem},
          {"baseline", other(input.baseline, outcome.baseline)},
          {"effects", effects}};
}

std::string to_json_text(const VerifyInput& input, const VerifyOutcome& outcome, const JudgeLimits& limits) {
  return to_json(input, outcome, limits).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace whomap
