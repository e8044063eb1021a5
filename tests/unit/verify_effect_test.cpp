// SPDX-License-Identifier: Apache-2.0
// --gone and --present, on the report of a trace of examples/raw_mmap: pool_grow leaks, pool_scratch maps and
// unmaps.
#include <gtest/gtest.h>

#include "core/verify/early.h"
#include "core/verify/effect.h"
#include "core/verify/outcome.h"
#include "tests/unit/verify_support.h"

namespace whomap {
namespace {

std::string report_text() {
  return read_file(std::string(TEST_DATA_DIR) + "/verify/report_raw_mmap.json").value_or("");
}

EffectPattern pattern(EffectKind kind, const std::string& expression) {
  auto compiled = NamePattern::compile(expression);
  EXPECT_TRUE(compiled) << expression;
  return {kind, *compiled};
}

EffectReport traced(EffectKind kind, const std::string& expression, const std::string& text = report_text()) {
  auto report = find_effects(text, {pattern(kind, expression)});
  EXPECT_TRUE(report) << (report ? "" : to_line(report.error()));
  return report.value_or(EffectReport{});
}

EffectState state(EffectKind kind, const std::string& expression, const EffectFinding* shown = nullptr) {
  const EffectReport report = traced(kind, expression);
  return judge_effect(report.findings.at(0), report.sight, shown).state;
}

TEST(VerifyEffect, FindsFunctionsAndModulesOfStacksThatMap) {
  const EffectReport leak = traced(EffectKind::gone, "^pool_grow$");
  EXPECT_EQ(leak.findings[0].stacks, 1U);
  EXPECT_EQ(leak.findings[0].calls, 47U);
  EXPECT_EQ(leak.findings[0].growth_bytes, 4587520U);
  EXPECT_EQ(leak.sight.events, 517U);
  EXPECT_EQ(leak.sight.lost, 0U);
  EXPECT_EQ(leak.sight.stacks, 3U);  // two more only unmap
  EXPECT_EQ(traced(EffectKind::gone, "libpool\\.so").findings[0].stacks, 2U);
  EXPECT_EQ(traced(EffectKind::gone, "handle_request").findings[0].stacks, 3U);
  EXPECT_EQ(traced(EffectKind::gone, "pool_scratch_end").findings[0].stacks, 0U);
}

TEST(VerifyEffect, GoneFailsWhileTheStackStillHoldsMemory) {
  const EffectReport report = traced(EffectKind::gone, "pool_grow");
  const EffectVerdict verdict = judge_effect(report.findings[0], report.sight, nullptr);
  EXPECT_EQ(verdict.state, EffectState::failed);
  EXPECT_NE(verdict.text.find("1 stack with /pool_grow/, 517 calls captured in 2.0 s: 4.4 MiB"),
            std::string::npos)
      << verdict.text;
}

TEST(VerifyEffect, GonePassesWhereAllIsUnmappedAgain) {
  EXPECT_EQ(state(EffectKind::gone, "pool_scratch"), EffectState::passed);
}

TEST(VerifyEffect, GoneIsProvenOnlyByATraceThatShowsItElsewhere) {
  EXPECT_EQ(state(EffectKind::gone, "arena_extend"), EffectState::unproven);
  EffectFinding shown{EffectKind::gone, "arena_extend", 0, 0, 0, {}};
  EXPECT_EQ(state(EffectKind::gone, "arena_extend", &shown), EffectState::unproven);  // a misspelt expression
  shown.stacks = 2;
  EXPECT_EQ(state(EffectKind::gone, "arena_extend", &shown), EffectState::passed);
}

TEST(VerifyEffect, PresentNeedsOneMappingStack) {
  EXPECT_EQ(state(EffectKind::present, "pool_scratch"), EffectState::passed);
  EXPECT_EQ(state(EffectKind::present, "arena_off"), EffectState::failed);
}

std::string changed(void (*change)(nlohmann::json&)) {
  auto report = nlohmann::json::parse(report_text());
  change(report);
  return report.dump();
}

TEST(VerifyEffect, ABlindTraceProvesNothing) {
  const EffectFinding shown{EffectKind::gone, "absent", 1, 1, 1, {}};
  const auto judged = [&](EffectKind kind, const std::string& text) {
    const EffectReport report = traced(kind, "absent", text);
    return judge_effect(report.findings[0], report.sight, &shown).state;
  };
  ASSERT_EQ(judged(EffectKind::gone, report_text()), EffectState::passed);
  ASSERT_EQ(judged(EffectKind::present, report_text()), EffectState::failed);
  for (const std::string& text :
       {changed([](nlohmann::json& r) { r["trace"]["events"] = nullptr; }),
        changed([](nlohmann::json& r) { r["trace"]["lost"] = 400; }),
        changed([](nlohmann::json& r) { r["trace"]["lost"] = nullptr; }),
        changed([](nlohmann::json& r) { r["stacks"][0]["truncated"] = "copy ended"; })})
    for (const EffectKind kind : {EffectKind::gone, EffectKind::present})
      EXPECT_EQ(judged(kind, text), EffectState::unproven);
}

TEST(VerifyEffect, ATraceWithoutACallIsWhatAFixMayLeave) {
  const std::string text = changed([](nlohmann::json& r) {
    r["trace"]["events"] = 0;
    r["stacks"] = nlohmann::json::array();
  });
  const EffectReport gone = traced(EffectKind::gone, "pool_grow", text);
  const EffectFinding shown{EffectKind::gone, "pool_grow", 1, 1, 1, {}};
  EXPECT_EQ(judge_effect(gone.findings[0], gone.sight, &shown).state, EffectState::passed);
  const EffectVerdict alone = judge_effect(gone.findings[0], gone.sight, nullptr);
  EXPECT_EQ(alone.state, EffectState::unproven);
  EXPECT_NE(alone.remedy.find("--control"), std::string::npos) << alone.remedy;
  const EffectReport present = traced(EffectKind::present, "pool_grow", text);
  const EffectVerdict none = judge_effect(present.findings[0], present.sight, nullptr);
  EXPECT_EQ(none.state, EffectState::unproven);
  EXPECT_NE(none.remedy.find("more of it"), std::string::npos) << none.remedy;  // and not "less load"
}

TEST(VerifyEffect, AGuessedFrameIsNoProofOfPresence) {
  const std::string text = changed([](nlohmann::json& r) {
    for (auto& stack : r["stacks"])
      for (auto& frame : stack["frames"]) frame["guessed"] = true;
  });
  EXPECT_EQ(traced(EffectKind::present, "pool_grow", text).findings[0].stacks, 0U);
  EXPECT_EQ(traced(EffectKind::gone, "pool_grow", text).findings[0].stacks, 1U);
}

TEST(VerifyEffect, DamagedReportsAreErrors) {
  const auto code = [](const std::string& text) {
    const auto report = find_effects(text, {pattern(EffectKind::gone, "x")});
    return report ? std::optional<ErrorCode>{} : report.error().code;
  };
  EXPECT_EQ(code(""), ErrorCode::input_damaged);
  EXPECT_EQ(code(report_text().substr(0, 900)), ErrorCode::input_damaged);
  EXPECT_EQ(code("{}"), ErrorCode::input_kind);
  EXPECT_EQ(code(R"({"format":"whomap-report","version":2})"), ErrorCode::input_kind);
  EXPECT_EQ(code(R"({"format":"whomap-report","version":1})"), ErrorCode::input_damaged);
  // Fields of other types are unknown, and no crash.
  EXPECT_FALSE(code(
      R"({"format":"whomap-report","version":1,"trace":[],"stacks":[1,null,{"frames":7},{"frames":[3,{"function":4}]}]})"));
}

TEST(NamePattern, RefusesWhatIsNoExpressionOrMatchesAll) {
  for (const char* wrong : {"(", "[a", "*x", "(?=look)", "", ".*", "a*"})
    EXPECT_FALSE(NamePattern::compile(wrong)) << wrong;
  EXPECT_FALSE(NamePattern::compile(std::string(100000, '(')));
}

TEST(NamePattern, LongNamesAndExpensiveExpressionsAreHarmless) {
  const auto nested = NamePattern::compile("^(a+)+$");
  ASSERT_TRUE(nested);
  EXPECT_FALSE(nested->matches(std::string(1'000'000, 'a') + "b"));
  const auto alternatives = NamePattern::compile("(x|xx|xxx)*y");
  ASSERT_TRUE(alternatives);
  EXPECT_FALSE(alternatives->matches(std::string(1'000'000, 'x')));
  EXPECT_TRUE(NamePattern::compile("ext.nd$")->matches("Arena::\xff\xfe::extend"));
}

// All parts together.

VariantResult flat(std::optional<EffectReport> effects = std::nullopt) {
  return {dense_run([](double) { return 900.0; }), std::move(effects)};
}
VariantResult leaking(double per_minute = 300) {
  return {dense_run([=](double t) { return 900 + per_minute * t / 60; }), std::nullopt};
}

VerdictClass outcome(const VerifyInput& input) {
  return conclude(input, {}).verdict.kind;
}

TEST(VerifyOutcome, AControlMustFailTheSameTest) {
  EXPECT_EQ(outcome({flat(), std::nullopt, std::nullopt}), VerdictClass::fixed);
  EXPECT_EQ(outcome({flat(), leaking(), std::nullopt}), VerdictClass::fixed);
  EXPECT_EQ(outcome({flat(), flat(), std::nullopt}), VerdictClass::proves_nothing);
  EXPECT_EQ(outcome({leaking(), flat(), std::nullopt}), VerdictClass::not_fixed);
  VariantResult crashed = leaking();
  crashed.run.ending = RunEnding::target_ended;
  EXPECT_EQ(outcome({flat(), crashed, std::nullopt}), VerdictClass::inconclusive);
  crashed.run.ending = RunEnding::interrupted;
  EXPECT_EQ(outcome({flat(), crashed, std::nullopt}), VerdictClass::interrupted);
}

TEST(VerifyOutcome, ABaselineMustFailTheSameTestAndBeTheSame) {
  EXPECT_EQ(outcome({flat(), std::nullopt, leaking()}), VerdictClass::fixed);
  EXPECT_EQ(outcome({flat(), std::nullopt, flat()}), VerdictClass::proves_nothing);
  VariantResult other = leaking();
  other.run.exercise = {"another", 200, 1, 200, 0, 0, ""};
  EXPECT_EQ(outcome({flat(), std::nullopt, other}), VerdictClass::inconclusive);
}

TEST(VerifyOutcome, SlowerThanBeforeIsNotFixed) {
  // 0.9 MiB a minute alone is below what is called a leak; of 1.8 before it is half.
  EXPECT_EQ(outcome({leaking(0.9), std::nullopt, std::nullopt}), VerdictClass::fixed);
  EXPECT_EQ(outcome({leaking(0.9), std::nullopt, leaking(300)}), VerdictClass::fixed);
  EXPECT_EQ(outcome({leaking(0.9), std::nullopt, leaking(0.95)}), VerdictClass::proves_nothing);
  EXPECT_EQ(outcome({leaking(0.9), std::nullopt, leaking(1.8)}), VerdictClass::not_fixed);
  EXPECT_EQ(outcome({leaking(0.9), std::nullopt, leaking(4)}), VerdictClass::not_fixed);
}

TEST(VerifyOutcome, WhatTheSubjectDidIsKeptWithoutItsControl) {
  VerifyInput input{flat(), std::nullopt, std::nullopt};
  input.control_problem =
      Error{ErrorCode::process_ended, "the control ended at once", "see what it printed", 0};
  const VerifyOutcome outcome_without = conclude(input, {});
  EXPECT_EQ(outcome_without.verdict.kind, VerdictClass::inconclusive);
  EXPECT_NE(outcome_without.verdict.text.find("the control ended at once; the subject alone: anonymous"),
            std::string::npos)
      << outcome_without.verdict.text;
  input.control_problem->code = ErrorCode::interrupted;
  EXPECT_EQ(conclude(input, {}).verdict.kind, VerdictClass::interrupted);
  input.subject = leaking();
  EXPECT_EQ(conclude(input, {}).verdict.kind, VerdictClass::not_fixed);
}

TEST(VerifyOutcome, MemoryAloneIsNoProofWhereATraceWasWanted) {
  VerifyInput input{flat(), std::nullopt, std::nullopt};
  input.subject.trace_problem = "the trace for --gone and --present failed: no room";
  EXPECT_EQ(conclude(input, {}).verdict.kind, VerdictClass::inconclusive);
  EXPECT_NE(conclude(input, {}).verdict.text.find("no room"), std::string::npos);
}

TEST(VerifyEarly, SaysBeforehandWhatWillSpoilTheVerdict) {
  VerifyRun planned = run_of({});
  planned.exercise = {"curl", 50, 2, 0, 0, 0, ""};
  const auto few = early_doubts(planned, {}, nullptr, {});
  ASSERT_EQ(few.size(), 1U);
  EXPECT_NE(few[0].find("100 operations"), std::string::npos) << few[0];
  planned.exercise.count = 100;
  EXPECT_TRUE(early_doubts(planned, {}, nullptr, {}).empty());

  planned.tree = true;
  EXPECT_EQ(early_doubts(planned, {}, nullptr, {pattern(EffectKind::gone, "Arena")}).size(), 1U);
  planned.tree = false;

  VariantResult before = leaking();
  EXPECT_NE(early_doubts(planned, {}, &before, {}).at(0).find("another exercise"), std::string::npos);
  planned.exercise = {};
  EXPECT_TRUE(early_doubts(planned, {}, &before, {}).empty());
  const auto untraced = early_doubts(planned, {}, &before, {pattern(EffectKind::gone, "Arena")});
  ASSERT_EQ(untraced.size(), 1U);
  EXPECT_NE(untraced[0].find("/Arena/"), std::string::npos) << untraced[0];
  before = flat();
  EXPECT_NE(early_doubts(planned, {}, &before, {}).at(0).find("prove nothing"), std::string::npos);
}

TEST(VerifyEarly, SaysAtAPointThatTheLoadDoesNotArrive) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  run.measurements.resize(41);  // two points of three
  EXPECT_EQ(doubt_so_far(run), std::nullopt);
  for (Measurement& each : run.measurements) each.cpu_seconds = 1.5;
  EXPECT_NE(doubt_so_far(run).value_or("").find("idle"), std::string::npos);
  run.exercise = {"curl", 200, 1, 100, 0, 0, ""};
  run.measurements.back().succeeded = 100;
  EXPECT_NE(doubt_so_far(run).value_or("").find("does not reach"), std::string::npos);
}

TEST(VerifyOutcome, EffectsDecideOverMemory) {
  EXPECT_EQ(outcome({flat(traced(EffectKind::gone, "pool_grow")), std::nullopt, std::nullopt}),
            VerdictClass::not_fixed);
  EXPECT_EQ(outcome({flat(traced(EffectKind::gone, "absent")), std::nullopt, std::nullopt}),
            VerdictClass::inconclusive);
  EXPECT_EQ(outcome({flat(traced(EffectKind::present, "pool_grow")), std::nullopt, std::nullopt}),
            VerdictClass::fixed);
  VariantResult control = leaking();
  control.effects = traced(EffectKind::gone, "absent");
  control.effects->findings[0].stacks = 3;
  const VerifyOutcome both = conclude({flat(traced(EffectKind::gone, "absent")), control, std::nullopt}, {});
  EXPECT_EQ(both.verdict.kind, VerdictClass::fixed);
  EXPECT_NE(both.verdict.text.find("the unfixed variant showed 3 stacks"), std::string::npos)
      << both.verdict.text;
}

}  // namespace
}  // namespace whomap
