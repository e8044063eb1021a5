// SPDX-License-Identifier: Apache-2.0
// Reads a saved verification. The file may be anybody's: every field is checked, and a wrong one is named.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/verify/saved.h"
#include "core/verify/words.h"

namespace whomap {
namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  Result<VariantResult> run(std::string_view text) {
    const json file = parse_json(text);
    if (file.is_discarded())
      return fail(ErrorCode::input_damaged, fmt::format("{} is not JSON", name_), "save it anew with --save");
    if (json_string(file, "format") != "whomap-verify")
      return fail(ErrorCode::input_kind, fmt::format("{} is not a saved verification", name_),
                  "give a file that --save wrote");
    if (json_unsigned(file, "version") != 1U)
      return fail(ErrorCode::input_kind, fmt::format("{} has a version that is not known here", name_),
                  "save it anew with --save");
    const json* subject = json_member(file, "subject");
    if (subject == nullptr || !subject->is_object())
      wrong("subject");
    else
      variant(*subject);
    if (!wrong_field_.empty())
      return fail(ErrorCode::input_damaged,
                  fmt::format("{}: {} is missing or not valid", name_, wrong_field_),
                  "save it anew with --save");
    return std::move(result_);
  }

 private:
  void wrong(std::string field) {
    if (wrong_field_.empty()) wrong_field_ = std::move(field);
  }

  std::uint64_t number(const json& object, const char* field) {
    const auto value = json_unsigned(object, field);
    if (!value) wrong(field);
    return value.value_or(0);
  }

  double seconds(const json& object, const char* field) {
    const auto value = json_number(object, field);
    if (!value || !std::isfinite(*value) || *value < 0) wrong(field);
    return value.value_or(0);
  }

  pid_t pid(const json& object) {
    const std::uint64_t value = number(object, "pid");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<pid_t>::max())) wrong("pid");
    return static_cast<pid_t>(value);
  }

  std::string text(const json& object, const char* field) {
    const json* member = json_member(object, field);
    if (member != nullptr && !member->is_null() && !member->is_string()) wrong(field);
    return json_string(object, field).value_or("");
  }

  /// null is "not known"; anything else that is no count is a damaged file.
  std::optional<std::uint64_t> known(const json& object, const char* field) {
    const json* member = json_member(object, field);
    if (member == nullptr || member->is_null()) return std::nullopt;
    return number(object, field);
  }

  const json& list(const json& object, const char* field) {
    static const json empty = json::array();
    const json* member = json_member(object, field);
    if (member != nullptr && member->is_array()) return *member;
    wrong(field);
    return empty;
  }

  void variant(const json& object) {
    VerifyRun& run = result_.run;
    if (const json* target = json_member(object, "target")) {
      run.target = {pid(*target), number(*target, "start_time"), text(*target, "exe"), text(*target, "comm")};
    } else {
      wrong("target");
    }
    run.command = text(object, "command");
    const auto tree = json_bool(object, "tree");
    if (!tree) wrong("tree");
    run.tree = tree.value_or(false);
    run.samples = number(object, "samples");
    run.interval_seconds = seconds(object, "interval_seconds");
    run.max_map_count = known(object, "max_map_count");
    if (const json* exercise = json_member(object, "exercise"); exercise != nullptr && !exercise->is_null())
      read(*exercise, run.exercise);
    ending(text(object, "ending"));
    run.ending_text = text(object, "ending_text");
    for (const json& point : list(object, "points")) run.measurements.push_back(measurement(point, true));
    for (const json& reading : list(object, "readings"))
      run.measurements.push_back(measurement(reading, false));
    std::stable_sort(run.measurements.begin(), run.measurements.end(),
                     [](const Measurement& a, const Measurement& b) { return a.seconds < b.seconds; });
    check_counts();
    if (const json* traced = json_member(object, "traced"); traced != nullptr && !traced->is_null())
      read_traced(*traced);
  }

  /// The judge takes differences of these.
  void check_counts() {
    const std::vector<Measurement>& all = result_.run.measurements;
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].succeeded < all[i - 1].succeeded || all[i].failed < all[i - 1].failed)
        wrong("succeeded or failed (they must ascend)");
  }

  void ending(const std::string& name) {
    for (const RunEnding each :
         {RunEnding::complete, RunEnding::interrupted, RunEnding::target_ended, RunEnding::target_replaced,
          RunEnding::unreadable, RunEnding::exercise_failed}) {
      if (word(each) != name) continue;
      result_.run.ending = each;
      return;
    }
    wrong("ending");
  }

  void read(const json& object, ExerciseRecord& exercise) {
    exercise.command = text(object, "command");
    if (exercise.command.empty()) wrong("exercise.command");
    exercise.count = number(object, "count");
    exercise.operations_per_run = number(object, "operations_per_run");
    exercise.succeeded = number(object, "succeeded");
    exercise.failed = number(object, "failed");
    exercise.timed_out = number(object, "timed_out");
    exercise.first_failure = text(object, "first_failure");
    constexpr std::uint64_t most = 1'000'000'000'000;
    if (exercise.succeeded > most || exercise.operations_per_run > 1'000'000)
      wrong("exercise (a count is too large)");
  }

  Measurement measurement(const json& object, bool point) {
    Measurement at;
    at.point = point;
    at.seconds = seconds(object, "seconds");
    at.start_time = number(object, "start_time");
    MemoryUse& memory = at.memory;
    memory.rss = known(object, "rss_bytes");
    memory.rss_anon = known(object, "rss_anon_bytes");
    memory.rss_file = known(object, "rss_file_bytes");
    memory.rss_shmem = known(object, "rss_shmem_bytes");
    memory.swap = known(object, "swap_bytes");
    memory.page_tables = known(object, "page_table_bytes");
    memory.lazy_free = known(object, "lazy_free_bytes");
    memory.mappings = known(object, "mappings");
    memory.threads = known(object, "threads");
    memory.held = known(object, "held_bytes");
    if (const json* cpu = json_member(object, "cpu_seconds"); cpu != nullptr && !cpu->is_null())
      at.cpu_seconds = seconds(object, "cpu_seconds");
    at.succeeded = known(object, "succeeded").value_or(0);
    at.failed = known(object, "failed").value_or(0);
    at.processes = known(object, "processes").value_or(1);
    at.most_mappings = known(object, "most_mappings");
    if (!at.most_mappings && at.processes == 1) at.most_mappings = memory.mappings;
    if (const json* members = json_member(object, "members"); members != nullptr && members->is_array())
      for (const json& member : *members)
        at.members.push_back({pid(member), number(member, "start_time"), known(member, "rss_anon_bytes")});
    return at;
  }

  void read_traced(const json& object) {
    EffectReport& traced = result_.effects.emplace();
    traced.sight = {json_number(object, "seconds"), known(object, "events"), known(object, "lost"),
                    number(object, "stacks"), number(object, "truncated")};
    for (const json& each : list(object, "findings")) {
      EffectFinding finding;
      const std::string kind = text(each, "kind");
      if (kind != word(EffectKind::gone) && kind != word(EffectKind::present)) wrong("findings.kind");
      finding.kind = kind == word(EffectKind::gone) ? EffectKind::gone : EffectKind::present;
      finding.expression = text(each, "expression");
      finding.stacks = number(each, "stacks");
      finding.calls = number(each, "calls");
      finding.growth_bytes = known(each, "growth_bytes");
      traced.findings.push_back(std::move(finding));
    }
  }

  std::string name_;
  std::string wrong_field_;
  VariantResult result_;
};

}  // namespace

Result<VariantResult> parse_saved_run(std::string_view text, const std::string& name) {
  return Reader(name).run(text);
}

}  // namespace whomap
