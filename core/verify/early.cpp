// SPDX-License-Identifier: Apache-2.0
#include "core/verify/early.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/load.h"

namespace whomap {
namespace {

std::string with_remedy(const std::string& text, const std::string& remedy) {
  return remedy.empty() ? text : fmt::format("{}; {}", text, remedy);
}

bool was_traced_for(const VariantResult& baseline, const EffectPattern& wanted) {
  if (!baseline.effects) return false;
  const auto& findings = baseline.effects->findings;
  return std::any_of(findings.begin(), findings.end(), [&](const EffectFinding& finding) {
    return finding.kind == wanted.kind && finding.expression == wanted.pattern.expression();
  });
}

}  // namespace

std::vector<std::string> early_doubts(const VerifyRun& planned, const JudgeLimits& limits,
                                      const VariantResult* baseline,
                                      const std::vector<EffectPattern>& effects) {
  std::vector<std::string> doubts;
  const ExerciseRecord& exercise = planned.exercise;
  if (const std::uint64_t operations = exercise.count * exercise.operations_per_run;
      !exercise.command.empty() && operations < limits.least_operations)
    doubts.push_back(
        fmt::format("{} are asked for, and with fewer than {} the verdict is inconclusive; give --count, or "
                    "--operations-per-run where one exercise performs many",
                    count_text(operations, "operation"), count_text(limits.least_operations)));
  if (planned.tree && !effects.empty())
    doubts.emplace_back(
        "--gone and --present trace the process itself, and none of the children that --tree measures");
  if (baseline == nullptr) return doubts;
  if (const std::string other = difference(baseline->run, planned); !other.empty())
    doubts.push_back(fmt::format(
        "the baseline measured {}, so that a pass will be inconclusive; give the same options", other));
  if (const Verdict before = judge(baseline->run, limits).verdict; !shows_the_leak(before.kind))
    doubts.push_back(fmt::format("the baseline was {} itself ({}), so that a pass will prove nothing",
                                 name_of(before.kind), with_remedy(before.text, before.remedy)));
  for (const EffectPattern& wanted : effects)
    if (wanted.kind == EffectKind::gone && !was_traced_for(*baseline, wanted))
      doubts.push_back(
          fmt::format("the baseline was not traced for /{}/, and cannot show that the trace sees it; save it "
                      "with the same --gone",
                      wanted.pattern.expression()));
  return doubts;
}

std::optional<std::string> doubt_so_far(const VerifyRun& so_far) {
  const auto points = points_of(so_far);
  if (points.size() < 2 || points.size() >= so_far.samples) return std::nullopt;
  const auto missed = load_missed(so_far, *points[points.size() - 2], *points.back());
  if (!missed) return std::nullopt;
  return with_remedy(missed->text, missed->remedy);
}

}  // namespace whomap
