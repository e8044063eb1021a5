// SPDX-License-Identifier: Apache-2.0
#include "core/verify/effect.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/match/quantity.h"

namespace whomap {
namespace {

using nlohmann::json;

constexpr std::uint64_t known_report_version = 1;
constexpr std::size_t most_examples = 3;

const json& array_or_empty(const json& object, const char* name) {
  static const json empty = json::array();
  const json* member = json_member(object, name);
  return member != nullptr && member->is_array() ? *member : empty;
}

/// What is still mapped of what a stack mapped. The part that is proven by two snapshots, else by the ledger
/// of calls.
std::optional<std::uint64_t> growth_of(const json& stack) {
  if (const auto growth = json_unsigned(stack, "growth_bytes")) return growth;
  return json_unsigned(stack, "live_bytes");
}

/// Stacks of calls that give memory back are in a trace too.
bool maps_memory(const json& stack) {
  const auto call = json_string(stack, "syscall");
  return call != "munmap" && call != "shmdt" && call != "madvise" && call != "mprotect";
}

/// The name that matched, if one did. A guessed frame may never have been called: good enough to doubt that a
/// path is gone, not to prove that one is present.
std::optional<std::string> matching_name(const json& stack, const EffectPattern& wanted) {
  for (const json& frame : array_or_empty(stack, "frames")) {
    if (wanted.kind == EffectKind::present && json_bool(frame, "guessed").value_or(false)) continue;
    for (const char* field : {"function", "module"})
      if (auto name = json_string(frame, field); name && wanted.pattern.matches(*name)) return name;
  }
  return std::nullopt;
}

void add_stack(EffectFinding& finding, const json& stack, std::string name) {
  ++finding.stacks;
  finding.calls += json_unsigned(stack, "count").value_or(0);
  const auto growth = growth_of(stack);
  if (growth && finding.growth_bytes)
    *finding.growth_bytes += *growth;
  else
    finding.growth_bytes = std::nullopt;
  const bool known =
      std::find(finding.examples.begin(), finding.examples.end(), name) != finding.examples.end();
  if (!known && finding.examples.size() < most_examples) finding.examples.push_back(std::move(name));
}

std::string sight_text(const TraceSight& sight) {
  return fmt::format("{} captured in {}",
                     sight.events ? count_text(*sight.events, "call") : "an unknown number of calls",
                     sight.seconds ? seconds_text(*sight.seconds) : "an unknown time");
}

struct BlindSpot {
  std::string reason, remedy;
};

/// Why this trace cannot prove that something did not happen.
std::optional<BlindSpot> blind_spot(const TraceSight& sight) {
  constexpr double most_lost = 0.01;
  if (!sight.events) return BlindSpot{"how many calls it captured is not known", "trace again"};
  if (!sight.lost) return BlindSpot{"how many calls the trace lost is not known", "trace again"};
  if (static_cast<double>(*sight.lost) > most_lost * static_cast<double>(*sight.events))
    return BlindSpot{fmt::format("the trace lost {}", count_text(*sight.lost, "call")),
                     "trace again with less load"};
  if (sight.truncated > 0)
    return BlindSpot{fmt::format("{} that grow end early, and the frame may be in the missing part",
                                 count_text(sight.truncated, "stack")),
                     "take the name of a frame that is further in: whomap trace -p PID shows them"};
  return std::nullopt;
}

EffectVerdict judge_gone(const EffectFinding& found, const TraceSight& sight, const EffectFinding* shown) {
  const std::string seen =
      fmt::format("{} with /{}/, {}", count_text(found.stacks, "stack"), found.expression, sight_text(sight));
  if (found.stacks > 0 && !found.growth_bytes)
    return {EffectState::unproven, seen + "; how much of it is still mapped is not known",
            "trace again, to the end of the exercise"};
  if (found.stacks > 0 && *found.growth_bytes > 0)
    return {EffectState::failed,
            fmt::format("{}: {} of theirs are still mapped ({})", seen, bytes_text(*found.growth_bytes),
                        fmt::join(found.examples, ", ")),
            "this code path still maps memory: the fix does not reach it"};
  if (const auto blind = blind_spot(sight))
    return {EffectState::unproven, seen + "; " + blind->reason, blind->remedy};
  if (found.stacks > 0) return {EffectState::passed, seen + ": all that they mapped is unmapped again", {}};
  if (shown != nullptr && shown->stacks > 0)
    return {EffectState::passed,
            fmt::format("{}; the unfixed variant showed {}", seen, count_text(shown->stacks, "stack")),
            {}};
  if (shown != nullptr)
    return {EffectState::unproven,
            seen + ", and none in the unfixed variant either: the expression may match nothing at all",
            "take the name of a frame from a whomap trace of the unfixed variant"};
  return {EffectState::unproven, seen + "; that this trace would have shown them is not proven",
          "give the unfixed variant with --control, or a --baseline that was saved with the same --gone"};
}

EffectVerdict judge_present(const EffectFinding& found, const TraceSight& sight) {
  const std::string seen =
      fmt::format("{} with /{}/, {}", count_text(found.stacks, "stack"), found.expression, sight_text(sight));
  if (found.stacks > 0)
    return {EffectState::passed, fmt::format("{} ({})", seen, fmt::join(found.examples, ", ")), {}};
  if (const auto blind = blind_spot(sight))
    return {EffectState::unproven, seen + "; " + blind->reason, blind->remedy};
  if (sight.events == 0U)
    return {EffectState::unproven, seen + ": nothing mapped memory during the trace",
            "make the exercise reach the code that does (more of it, or another one)"};
  return {EffectState::failed, seen + ": this code path did not map memory",
          "what should take effect is not in the path of the load"};
}

}  // namespace

Result<EffectReport> find_effects(std::string_view report_text, const std::vector<EffectPattern>& patterns) {
  const json report = parse_json(report_text);
  if (report.is_discarded())
    return fail(ErrorCode::input_damaged, "the trace's report is not JSON", "see what whomap trace prints");
  if (json_string(report, "format") != "whomap-report")
    return fail(ErrorCode::input_kind, "the trace's report is not a whomap-report");
  if (json_unsigned(report, "version") != known_report_version)
    return fail(ErrorCode::input_kind, "the trace's report has a version that is not known here",
                "use whomap trace of the same version");
  const json* stacks = json_member(report, "stacks");
  if (stacks == nullptr || !stacks->is_array())
    return fail(ErrorCode::input_damaged, "the trace's report has no stacks");

  EffectReport result;
  if (const json* trace = json_member(report, "trace")) {
    result.sight.seconds = json_number(*trace, "seconds");
    result.sight.events = json_unsigned(*trace, "events");
    result.sight.lost = json_unsigned(*trace, "lost");
  }
  for (const EffectPattern& wanted : patterns)
    result.findings.push_back({wanted.kind, wanted.pattern.expression(), 0, 0, 0, {}});
  for (const json& stack : *stacks) {
    if (!maps_memory(stack)) continue;
    ++result.sight.stacks;
    if (json_string(stack, "truncated") && growth_of(stack).value_or(1) > 0) ++result.sight.truncated;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (auto name = matching_name(stack, patterns[i]))
        add_stack(result.findings[i], stack, std::move(*name));
  }
  return result;
}

EffectVerdict judge_effect(const EffectFinding& finding, const TraceSight& sight,
                           const EffectFinding* shown) {
  return finding.kind == EffectKind::gone ? judge_gone(finding, sight, shown) : judge_present(finding, sight);
}

}  // namespace whomap
