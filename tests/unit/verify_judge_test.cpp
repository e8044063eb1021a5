// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/unit/verify_support.h"

namespace whomap {
namespace {

// The sequences of case D12.

TEST(VerifyRecorded, GrowthOfFilePagesIsNotTheSameLeak) {
  const Verdict verdict = verdict_of(recorded("file_pages_grow.json").run);
  EXPECT_EQ(verdict.kind, VerdictClass::not_same_leak) << verdict.text;
  EXPECT_NE(verdict.text.find("301 MiB"), std::string::npos) << verdict.text;
}

TEST(VerifyRecorded, HalfAsFastIsNotFixed) {
  const Verdict verdict = verdict_of(recorded("half_as_fast.json").run);
  EXPECT_EQ(verdict.kind, VerdictClass::not_fixed) << verdict.text;
  EXPECT_NE(verdict.text.find("+204 MiB/min"), std::string::npos) << verdict.text;
}

TEST(VerifyRecorded, ARealFixIsFixed) {
  const Verdict verdict = verdict_of(recorded("real_fix.json").run);
  EXPECT_EQ(verdict.kind, VerdictClass::fixed) << verdict.text;
  EXPECT_NE(verdict.text.find("200 operations"), std::string::npos) << verdict.text;
}

TEST(VerifyRecorded, ARestartInBetweenIsInvalid) {
  const Verdict verdict = verdict_of(recorded("restarted.json").run);
  EXPECT_EQ(verdict.kind, VerdictClass::invalid) << verdict.text;
}

TEST(VerifyRecorded, GrowthInTheWarmUpAloneIsInconclusive) {
  const Verdict verdict = verdict_of(recorded("warm_up_only.json").run);
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("warming up"), std::string::npos) << verdict.text;
}

TEST(VerifyRecorded, GrowthThatVmRssDoesNotShowHasMoved) {
  for (const auto& [file, where] : {std::pair{"moved_to_shmem.json", "shared memory"},
                                    {"moved_to_swap.json", "swap"},
                                    {"moved_to_page_tables.json", "page tables"}}) {
    const Verdict verdict = verdict_of(recorded(file).run);
    EXPECT_EQ(verdict.kind, VerdictClass::moved) << file << ": " << verdict.text;
    EXPECT_NE(verdict.text.find(where), std::string::npos) << verdict.text;
  }
}

// Shapes between the points.

TEST(Verify, FlatReadingsAreFixedAndSayWhatTheyExclude) {
  const Judgement result = judge(dense_run([](double) { return 900.0; }), {});
  EXPECT_EQ(result.verdict.kind, VerdictClass::fixed) << result.verdict.text;
  EXPECT_NE(result.verdict.text.find("growth above 0 B/min is excluded"), std::string::npos)
      << result.verdict.text;
  ASSERT_FALSE(result.notes.empty());
  EXPECT_NE(result.notes.back().find("load came from elsewhere"), std::string::npos);
}

TEST(Verify, ASteadyLeakBelowTheLimitIsNotFixed) {
  // 30 MiB/min: 15 MiB between the points, far below 100.
  const Verdict verdict = verdict_of(dense_run([](double t) { return 900 + t / 2; }));
  EXPECT_EQ(verdict.kind, VerdictClass::not_fixed) << verdict.text;
  EXPECT_NE(verdict.text.find("+30 MiB/min [+30 MiB .. +30 MiB]"), std::string::npos) << verdict.text;
}

TEST(Verify, AStepThatStaysIsGrowthAsARampIs) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return t < 45 ? 512.0 : 1024.0; }));
  EXPECT_EQ(verdict.kind, VerdictClass::not_fixed) << verdict.text;
}

TEST(Verify, AHighLastPointAloneIsNoEvidence) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return t < 60 ? 512.0 : 1024.0; }));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("not shortly before"), std::string::npos) << verdict.text;
}

TEST(Verify, AHighMiddlePointDoesNotHideALeak) {
  // 80 MiB/min, and the middle reading happens to be 200 MiB above its neighbours.
  const Verdict verdict =
      verdict_of(dense_run([](double t) { return 900 + t * 80 / 60 + (t == 30 ? 200 : 0); }));
  EXPECT_NE(verdict.kind, VerdictClass::fixed) << verdict.text;
}

TEST(Verify, AWarmUpThatWasSeenToEndIsNoObjection) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return t < 6 ? 10 + 100 * t : 610.0; }));
  EXPECT_EQ(verdict.kind, VerdictClass::fixed) << verdict.text;
}

TEST(Verify, AWarmUpThatLastsToTheMiddleIsInconclusive) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return t < 30 ? 10 + 20 * t : 610.0; }));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("warming up"), std::string::npos) << verdict.text;
}

TEST(Verify, ACacheThatFillsInTheJudgedPartIsStillWarmingUp) {
  // 400 MiB within the first 12 or 20 of the 30 s that are judged, or ebbing away; and then nothing more.
  for (const double filled_after : {12.0, 20.0}) {
    const Verdict verdict = verdict_of(
        dense_run([=](double t) { return 500 + 400 * std::clamp((t - 30) / filled_after, 0.0, 1.0); }));
    EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
    EXPECT_NE(verdict.text.find("warming up"), std::string::npos) << verdict.text;
    EXPECT_NE(verdict.remedy.find("warm now"), std::string::npos) << verdict.remedy;
  }
  const Verdict ebbing =
      verdict_of(dense_run([](double t) { return 900 - 400 * std::exp(-std::max(t - 30, 0.0) / 6); }));
  EXPECT_EQ(ebbing.kind, VerdictClass::inconclusive) << ebbing.text;
}

TEST(Verify, AStartedProgramIsColdAtTheNextRunToo) {
  VerifyRun run = dense_run([](double t) { return 500 + 400 * std::clamp((t - 30) / 12, 0.0, 1.0); });
  run.command = "./server";
  EXPECT_NE(verdict_of(run).remedy.find("--samples 6"), std::string::npos) << verdict_of(run).remedy;
}

TEST(Verify, GrowthInStepsIsNoCacheThatFilled) {
  // 150 MiB every 6 s: also where the last of them was followed by a standstill.
  const Verdict verdict = verdict_of(dense_run([](double t) { return 500 + 150 * std::floor(t / 6); }));
  EXPECT_EQ(verdict.kind, VerdictClass::not_fixed) << verdict.text;
}

TEST(Verify, TheIntervalIsOnlyPrintedWhereItIsTheEvidence) {
  const auto step = [](double t) { return t < 45 ? 512.0 : 1024.0; };
  const Verdict verdict = verdict_of(dense_run(step));
  ASSERT_EQ(verdict.kind, VerdictClass::not_fixed);
  EXPECT_EQ(verdict.text.find('['), std::string::npos) << verdict.text;
  EXPECT_NE(verdict.text.find("+1 GiB/min on average"), std::string::npos) << verdict.text;
}

TEST(Verify, GrowthThatEbbsAwayIsInconclusive) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return 900 - 60 * std::exp(-(t - 30) / 8); }));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("slower"), std::string::npos) << verdict.text;
}

TEST(Verify, NoiseAboveTheLimitIsInconclusive) {
  int n = 0;
  const Verdict verdict = verdict_of(dense_run([&](double) { return ++n % 7 < 3 ? 900.0 : 1050.0; }));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("rises and falls by 150 MiB"), std::string::npos) << verdict.text;
}

TEST(Verify, ThreePointsWithALeakBelowTheLimitAreInconclusive) {
  const Verdict verdict = verdict_of(run_of({at(0, 900, true), at(30, 910, true), at(60, 920, true)}));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
}

TEST(Verify, ALowerEarlyValueIsNotEvidence) {
  const Verdict verdict = verdict_of(run_of({at(0, 1900, true), at(30, 700, true), at(60, 1200, true)}));
  EXPECT_NE(verdict.kind, VerdictClass::fixed) << verdict.text;
}

TEST(Verify, AShortTimeIsEnoughToSeeAFastLeak) {
  const Verdict verdict = verdict_of(dense_run([](double t) { return 900 + 40 * t; }, 3, 2));
  EXPECT_EQ(verdict.kind, VerdictClass::not_fixed) << verdict.text;
}

TEST(Verify, TooShortATimeCannotExcludeALeak) {
  const Verdict verdict = verdict_of(dense_run([](double) { return 900.0; }, 3, 0.5));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("too short"), std::string::npos) << verdict.text;
  JudgeLimits limits;
  limits.growth.max_rate = 100 * mib / 60;
  EXPECT_EQ(verdict_of(dense_run([](double) { return 900.0; }, 3, 0.5), limits).kind, VerdictClass::fixed);
}

// What else decides.

TEST(Verify, MemoryGivenBackLazilyIsNotGrowth) {
  VerifyRun run = dense_run([](double t) { return t < 32 ? 900.0 : 1150.0; });
  run.measurements.back().memory.lazy_free = static_cast<std::uint64_t>(249 * mib);
  const Judgement result = judge(run, {});
  EXPECT_EQ(result.verdict.kind, VerdictClass::fixed) << result.verdict.text;
  ASSERT_FALSE(result.notes.empty());
  EXPECT_NE(result.notes.front().find("MADV_FREE"), std::string::npos);
  // The slope holds what was given back, so that it excludes nothing.
  EXPECT_EQ(result.verdict.text.find("excluded"), std::string::npos) << result.verdict.text;
  EXPECT_NE(result.verdict.text.find("249 MiB of it given back"), std::string::npos) << result.verdict.text;
}

TEST(Verify, AGrowthThatIsExcludedIsNeverAboveTheLimit) {
  for (const double leak : {0.0, 0.3, 0.9, 3.0, 9.0})
    for (const double lazy : {0.0, 2.0, 5.0}) {
      VerifyRun run = dense_run([&](double t) { return 900 + leak * t / 60; });
      run.measurements.back().memory.lazy_free = static_cast<std::uint64_t>(lazy * mib);
      const Judgement result = judge(run, {});
      if (result.verdict.text.find("is excluded") != std::string::npos) {
        EXPECT_LE(result.trend(MemoryKind::anonymous)->slope->high * 60, 10 * mib) << result.verdict.text;
      }
    }
}

VerifyRun with_mappings(std::size_t points, double from, double per_minute) {
  VerifyRun run = dense_run([](double) { return 900.0; }, points);
  run.max_map_count = 65530;
  for (Measurement& each : run.measurements)
    if (each.point) each.most_mappings = static_cast<std::uint64_t>(from + per_minute * each.seconds / 60);
  return run;
}

TEST(Verify, MappingsThatGrowTowardsTheirLimitAreNotFixed) {
  EXPECT_EQ(verdict_of(with_mappings(3, 500, 100)).kind,
            VerdictClass::fixed);  // 50: fewer than a pool of threads
  const Verdict few = verdict_of(with_mappings(3, 500, 5000));
  EXPECT_EQ(few.kind, VerdictClass::inconclusive) << few.text;
  EXPECT_NE(few.text.find("from 3,000 to 5,500"), std::string::npos) << few.text;
  EXPECT_NE(few.text.find("65,530 of vm.max_map_count are reached in 12 min"), std::string::npos) << few.text;
  EXPECT_EQ(verdict_of(with_mappings(6, 500, 5000)).kind, VerdictClass::moved);
  VerifyRun warm_up = with_mappings(6, 500, 0);
  warm_up.measurements.front().most_mappings = 100;
  EXPECT_EQ(verdict_of(warm_up).kind, VerdictClass::fixed);
}

TEST(Verify, ManyMappingsAreNoted) {
  const Judgement near = judge(with_mappings(3, 60000, 0), {});
  ASSERT_FALSE(near.notes.empty());
  EXPECT_NE(near.notes.front().find("60,000 mappings of the 65,530"), std::string::npos)
      << near.notes.front();
}

TEST(Verify, MemoryThatIsHeldWithoutBeingMappedHasMoved) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  for (Measurement& each : run.measurements) {
    each.memory.held = std::nullopt;
    if (each.point) each.memory.held = static_cast<std::uint64_t>(each.seconds * 10 * mib);
  }
  const Verdict verdict = verdict_of(run);
  EXPECT_EQ(verdict.kind, VerdictClass::moved) << verdict.text;
  EXPECT_NE(verdict.text.find("memfds, open tmpfs files and SysV segments grew by 300 MiB"),
            std::string::npos)
      << verdict.text;
}

TEST(Verify, AnExerciseThatWasGivenUpIsInconclusive) {
  VerifyRun run = run_of({at(0, 900, true)});
  run.ending = RunEnding::exercise_failed;
  run.ending_text = "the exercise failed 10 of 10 times and was given up; the first time: exit status 7";
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::inconclusive);
  EXPECT_NE(verdict_of(run).text.find("exit status 7"), std::string::npos);
}

TEST(Verify, TheAdviceAgainstNoiseIsNeverADay) {
  int n = 0;
  // 60 MiB of noise against a limit of 10 MiB a minute.
  const Verdict noisy = verdict_of(dense_run([&](double) { return 900.0 + (++n * 7919 % 61); }));
  EXPECT_EQ(noisy.kind, VerdictClass::inconclusive) << noisy.text;
  EXPECT_EQ(noisy.remedy.find("--interval"), std::string::npos) << noisy.remedy;
}

TEST(Verify, SwappingOutIsNeitherGrowthNorAFix) {
  const auto swapped = [](double leaked) {
    VerifyRun run = dense_run([](double t) { return t < 40 ? 900.0 : 500.0; });
    for (Measurement& each : run.measurements)
      each.memory.swap =
          each.seconds < 40 ? 0 : static_cast<std::uint64_t>((400 + leaked * (each.seconds - 30) / 30) * mib);
    return run;
  };
  EXPECT_EQ(verdict_of(swapped(0)).kind, VerdictClass::fixed);
  EXPECT_EQ(verdict_of(swapped(300)).kind, VerdictClass::moved);
}

TEST(Verify, AnIdleProcessProvesNothing) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  for (Measurement& each : run.measurements) each.cpu_seconds = 1.5;
  const Verdict verdict = verdict_of(run);
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive);
  EXPECT_NE(verdict.text.find("idle"), std::string::npos) << verdict.text;
}

VerifyRun exercised(std::uint64_t succeeded, std::uint64_t failed) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  run.exercise = {"true", succeeded + failed, 1, succeeded, failed, 0, failed > 0 ? "exit status 7" : ""};
  for (Measurement& each : run.measurements) {
    each.succeeded = static_cast<std::uint64_t>(static_cast<double>(succeeded) * each.seconds / 60);
    each.failed = static_cast<std::uint64_t>(static_cast<double>(failed) * each.seconds / 60);
  }
  return run;
}

TEST(Verify, FewerThanTwoHundredOperationsAreNoEvidence) {
  EXPECT_EQ(verdict_of(exercised(200, 0)).kind, VerdictClass::fixed);
  const Verdict verdict = verdict_of(exercised(199, 0));
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive);
  EXPECT_NE(verdict.text.find("199 operations"), std::string::npos) << verdict.text;
  VerifyRun batches = exercised(10, 0);
  batches.exercise.operations_per_run = 20;
  EXPECT_EQ(verdict_of(batches).kind, VerdictClass::fixed);
}

TEST(Verify, AFailingExerciseIsInconclusive) {
  EXPECT_EQ(verdict_of(exercised(200, 10)).kind, VerdictClass::fixed);
  for (const auto& [succeeded, failed] : {std::pair{0, 200}, {150, 50}, {600, 100}}) {
    const Verdict verdict =
        verdict_of(exercised(static_cast<std::uint64_t>(succeeded), static_cast<std::uint64_t>(failed)));
    EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << succeeded;
    EXPECT_NE(verdict.text.find("exit status 7"), std::string::npos) << verdict.text;
  }
}

TEST(Verify, AnExerciseThatFailsOnlyInTheJudgedPartIsInconclusive) {
  VerifyRun run = exercised(400, 0);
  run.exercise.succeeded = 200;
  run.exercise.failed = 200;
  run.exercise.first_failure = "exit status 7";
  for (Measurement& each : run.measurements)
    if (each.seconds > 30) {
      each.failed = each.succeeded - 200;
      each.succeeded = 200;
    }
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::inconclusive);
}

TEST(Verify, AnExerciseThatDoesNotReachTheProcessIsInconclusive) {
  VerifyRun run = exercised(200, 0);
  for (Measurement& each : run.measurements) each.cpu_seconds = 1 + each.seconds * 1e-7;
  const Verdict verdict = verdict_of(run);
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive);
  EXPECT_NE(verdict.text.find("does not reach"), std::string::npos) << verdict.text;
}

TEST(Verify, AWorkerThatEndsHidesGrowth) {
  VerifyRun run = dense_run([](double t) { return t < 45 ? 900.0 : 600.0; });
  run.tree = true;
  for (Measurement& each : run.measurements) {
    if (each.point) each.members = {{11, 5, static_cast<std::uint64_t>(300 * mib)}};
    if (each.point && each.seconds > 45)
      each.members = {{11, 9, static_cast<std::uint64_t>(10 * mib)}};  // the pid came back
  }
  const Verdict verdict = verdict_of(run);
  EXPECT_EQ(verdict.kind, VerdictClass::inconclusive) << verdict.text;
  EXPECT_NE(verdict.text.find("hides growth"), std::string::npos) << verdict.text;
}

TEST(Verify, EndingsOfARun) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  run.measurements.resize(60);
  run.ending = RunEnding::target_ended;
  run.ending_text = "process 4090 has ended";
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::invalid);
  EXPECT_NE(verdict_of(run).text.find("has ended"), std::string::npos);
  run.ending = RunEnding::interrupted;
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::interrupted);
  EXPECT_NE(verdict_of(run).text.find("after 2 of 3 points"), std::string::npos) << verdict_of(run).text;
  run.ending = RunEnding::complete;
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::inconclusive);
  EXPECT_EQ(verdict_of(run_of({})).kind, VerdictClass::inconclusive);
}

TEST(Verify, OldKernelsWithoutASplitAreJudgedByVmRss) {
  VerifyRun run = dense_run([](double t) { return 900 + 10 * t; });
  for (Measurement& each : run.measurements)
    each.memory.rss_anon = each.memory.rss_file = each.memory.rss_shmem = std::nullopt;
  const Judgement result = judge(run, {});
  EXPECT_EQ(result.verdict.kind, VerdictClass::not_fixed) << result.verdict.text;
  EXPECT_NE(result.notes.front().find("VmRSS"), std::string::npos);
}

TEST(Verify, HugeValuesDoNotOverflow) {
  VerifyRun run = dense_run([](double) { return 900.0; });
  for (Measurement& each : run.measurements) each.memory.rss_anon = each.seconds < 40 ? 0 : ~std::uint64_t{0};
  EXPECT_EQ(verdict_of(run).kind, VerdictClass::not_fixed);
}

TEST(Verify, ExitStatuses) {
  EXPECT_EQ(static_cast<int>(exit_status(VerdictClass::fixed)), 0);
  for (const VerdictClass each : {VerdictClass::not_fixed, VerdictClass::not_same_leak, VerdictClass::moved,
                                  VerdictClass::proves_nothing})
    EXPECT_EQ(static_cast<int>(exit_status(each)), 1);
  EXPECT_EQ(static_cast<int>(exit_status(VerdictClass::invalid)), 3);
  EXPECT_EQ(static_cast<int>(exit_status(VerdictClass::inconclusive)), 7);
  EXPECT_EQ(static_cast<int>(exit_status(VerdictClass::interrupted)), 130);
}

}  // namespace
}  // namespace whomap
