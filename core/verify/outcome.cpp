// SPDX-License-Identifier: Apache-2.0
#include "core/verify/outcome.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/verify/amount.h"

namespace whomap {
namespace {

/// What the unfixed variant says about a subject that passed.
Verdict against_unfixed(const Verdict& subject, const Judgement& unfixed, const std::string& name) {
  const VerdictClass kind = unfixed.verdict.kind;
  if (kind == VerdictClass::fixed)
    return {VerdictClass::proves_nothing,
            fmt::format("this test proves nothing: {} passes it too ({})", name, unfixed.verdict.text),
            "make the exercise reach the code that leaks: more of it (--count), for longer (--interval), or "
            "a lower --max-delta"};
  if (!shows_the_leak(kind))
    return {VerdictClass::inconclusive,
            fmt::format("whether this test would have seen the leak is not known: {} was {}: {}", name,
                        name_of(kind), unfixed.verdict.text),
            unfixed.verdict.remedy};
  // What grew there may be another kind of memory; its verdict has the figures.
  const Trend* const trend = unfixed.trend(MemoryKind::anonymous);
  const std::string grew = kind == VerdictClass::not_fixed && trend != nullptr
                               ? fmt::format("{} grew by {}", name, growth_rate_text(*trend))
                               : fmt::format("{} was {}: {}", name, name_of(kind), unfixed.verdict.text);
  return {subject.kind, fmt::format("{}; {}", subject.text, grew), subject.remedy};
}

/// A tenth of a leak is a leak, even where a new program of that slope would pass.
Verdict against_rate_before(const Verdict& subject, const Judgement& now, const Judgement& before) {
  constexpr double least_share = 0.1;
  const Trend* trend = now.trend(MemoryKind::anonymous);
  const Trend* earlier = before.trend(MemoryKind::anonymous);
  if (trend == nullptr || earlier == nullptr || !trend->slope || trend->slope->low <= 0) return subject;
  if (trend->rate() < least_share * earlier->rate()) return subject;
  return {VerdictClass::not_fixed,
          fmt::format("anonymous memory still grows by {}, and slower is not fixed (before: {})",
                      rate_text(*trend), rate_text(*earlier)),
          "whomap trace -p PID shows which code maps it"};
}

const EffectFinding* same_finding(const std::optional<VariantResult>& variant, const EffectFinding& wanted) {
  if (!variant || !variant->effects) return nullptr;
  for (const EffectFinding& each : variant->effects->findings)
    if (each.kind == wanted.kind && each.expression == wanted.expression) return &each;
  return nullptr;
}

/// The effects' part: the first failure decides, else the first that is unproven.
Verdict with_effects(Verdict verdict, const std::vector<EffectVerdict>& effects) {
  for (const EffectVerdict& effect : effects)
    if (effect.state == EffectState::failed)
      return {VerdictClass::not_fixed, effect.text + "; memory alone: " + verdict.text, effect.remedy};
  for (const EffectVerdict& effect : effects)
    if (effect.state == EffectState::unproven)
      return {VerdictClass::inconclusive, effect.text + "; memory alone: " + verdict.text, effect.remedy};
  for (const EffectVerdict& effect : effects) verdict.text += "; " + effect.text;
  return verdict;
}

}  // namespace

bool shows_the_leak(VerdictClass verdict) {
  return verdict == VerdictClass::not_fixed || verdict == VerdictClass::moved ||
         verdict == VerdictClass::not_same_leak;
}

std::string difference(const VerifyRun& before, const VerifyRun& now) {
  if (before.exercise.command != now.exercise.command) return "another exercise";
  if (before.exercise.operations_per_run != now.exercise.operations_per_run)
    return "another number of operations per exercise";
  constexpr double about_as_long = 0.9;
  const auto length = [](const VerifyRun& run) {
    return run.interval_seconds * static_cast<double>(run.samples - 1);
  };
  if (length(now) < about_as_long * length(before)) return "for longer (--samples, --interval)";
  if (before.tree != now.tree) return before.tree ? "the whole tree" : "one process without its children";
  return {};
}

VerifyOutcome conclude(const VerifyInput& input, const JudgeLimits& limits) {
  VerifyOutcome outcome;
  outcome.subject = judge(input.subject.run, limits);
  if (input.control) outcome.control = judge(input.control->run, limits);
  if (input.baseline) outcome.baseline = judge(input.baseline->run, limits);
  outcome.verdict = outcome.subject.verdict;
  if (input.subject.effects) {
    for (const EffectFinding& finding : input.subject.effects->findings) {
      const EffectFinding* shown = same_finding(input.control, finding);
      if (shown == nullptr) shown = same_finding(input.baseline, finding);
      outcome.effects.push_back(judge_effect(finding, input.subject.effects->sight, shown));
    }
  }
  const auto still_fixed = [&] { return outcome.verdict.kind == VerdictClass::fixed; };
  if (still_fixed() && input.baseline) {
    if (const std::string other = difference(input.baseline->run, input.subject.run); !other.empty()) {
      outcome.verdict = {VerdictClass::inconclusive,
                         fmt::format("the baseline measured {}: the two cannot be compared", other),
                         "save a baseline with the same options"};
    } else {
      outcome.verdict = against_unfixed(outcome.verdict, *outcome.baseline, "the baseline");
      if (still_fixed())
        outcome.verdict = against_rate_before(outcome.verdict, outcome.subject, *outcome.baseline);
    }
  }
  if (still_fixed() && input.control_problem) {
    const Error& problem = *input.control_problem;
    const bool interrupted = problem.code == ErrorCode::interrupted;
    outcome.verdict = {interrupted ? VerdictClass::interrupted : VerdictClass::inconclusive,
                       fmt::format("the control could not be measured: {}; the subject alone: {}",
                                   problem.happened, outcome.verdict.text),
                       problem.remedy};
  }
  if (still_fixed() && outcome.control && outcome.control->verdict.kind == VerdictClass::interrupted)
    outcome.verdict = {
        VerdictClass::interrupted,
        "interrupted while the control was measured; the subject alone: " + outcome.verdict.text,
        outcome.control->verdict.remedy};
  if (still_fixed() && outcome.control) {
    outcome.verdict = against_unfixed(outcome.verdict, *outcome.control, "the control");
    if (still_fixed())
      outcome.verdict = against_rate_before(outcome.verdict, outcome.subject, *outcome.control);
  }
  if (still_fixed()) outcome.verdict = with_effects(outcome.verdict, outcome.effects);
  if (still_fixed() && !input.subject.trace_problem.empty())
    outcome.verdict = {VerdictClass::inconclusive,
                       fmt::format("{}; memory alone: {}", input.subject.trace_problem, outcome.verdict.text),
                       "see what whomap trace -p PID says"};
  return outcome;
}

}  // namespace whomap
