// SPDX-License-Identifier: Apache-2.0
// Saved runs, the text and the plot.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/verify/plot.h"
#include "core/verify/text.h"
#include "tests/unit/verify_support.h"

namespace whomap {
namespace {

VerifyInput exercised_input() {
  VerifyInput input;
  VerifyRun& run = input.subject.run;
  run = dense_run([](double t) { return 900 + 5 * t; });
  run.exercise = {"curl -fs localhost", 200, 1, 200, 3, 1, "exit status 7"};
  run.tree = true;
  run.notes = {"LazyFree is not known"};
  run.measurements.front().members = {{7, 70, 4096}, {8, 80, std::nullopt}};
  run.measurements.back().memory.lazy_free = std::nullopt;
  for (Measurement& each : run.measurements)
    each.succeeded = static_cast<std::uint64_t>(each.seconds * 200 / 60);
  run.measurements.back().failed = 3;
  input.subject.effects = EffectReport{{2.5, 517, 3, 5, 1},
                                       {{EffectKind::gone, "Arena", 2, 40, std::nullopt, {"Arena::Extend"}}}};
  return input;
}

TEST(VerifySaved, ComesBackAsItWas) {
  const VerifyInput input = exercised_input();
  const std::string text = to_json_text(input, conclude(input, {}), {});
  const auto back = parse_saved_run(text, "saved");
  ASSERT_TRUE(back) << to_line(back.error());
  ASSERT_EQ(back->run.measurements.size(), input.subject.run.measurements.size());
  for (std::size_t i = 0; i < back->run.measurements.size(); ++i) {
    const Measurement& was = input.subject.run.measurements[i];
    const Measurement& is = back->run.measurements[i];
    EXPECT_EQ(is.point, was.point);
    EXPECT_NEAR(is.seconds, was.seconds, 1e-6);
    EXPECT_EQ(is.memory.rss_anon, was.memory.rss_anon);
    EXPECT_EQ(is.memory.lazy_free, was.memory.lazy_free);
    EXPECT_EQ(is.succeeded, was.succeeded);
    EXPECT_EQ(is.members, was.members);
  }
  EXPECT_EQ(back->run.exercise.first_failure, "exit status 7");
  ASSERT_TRUE(back->effects);
  EXPECT_EQ(back->effects->findings[0].stacks, 2U);
  EXPECT_EQ(back->effects->findings[0].growth_bytes, std::nullopt);
  EXPECT_EQ(judge(back->run, {}).verdict.text, judge(input.subject.run, {}).verdict.text);
}

TEST(VerifySaved, DamageIsNamed) {
  const VerifyInput input = exercised_input();
  const auto good = nlohmann::json::parse(to_json_text(input, conclude(input, {}), {}));
  const auto happened = [](const nlohmann::json& file) {
    const auto run = parse_saved_run(file.dump(), "saved");
    return run ? std::string("accepted") : run.error().happened;
  };
  EXPECT_EQ(happened(good), "accepted");
  for (const auto& [path, value, named] :
       std::initializer_list<std::tuple<const char*, nlohmann::json, const char*>>{
           {"/subject/points/1/seconds", -1, "seconds"},
           {"/subject/points/1/seconds", "x", "seconds"},
           {"/subject/points/0/rss_anon_bytes", -4, "rss_anon_bytes"},
           {"/subject/points/0/rss_anon_bytes", 1.5, "rss_anon_bytes"},
           {"/subject/points/0/start_time", nullptr, "start_time"},
           {"/subject/points/0/succeeded", 1000000, "succeeded"},
           {"/subject/points", 3, "points"},
           {"/subject/ending", "well", "ending"},
           {"/subject/exercise/succeeded", 1e18, "succeeded"},
           {"/subject/target/pid", 1ULL << 40, "pid"},
           {"/subject/traced/findings/0/kind", "both", "kind"},
           {"/subject/tree", 1, "tree"}}) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(path)] = value;
    EXPECT_NE(happened(bad).find(named), std::string::npos) << path << ": " << happened(bad);
  }
}

TEST(VerifySaved, AnyCutOfAFileIsAnErrorAndNoCrash) {
  const VerifyInput input = exercised_input();
  const std::string text = to_json_text(input, conclude(input, {}), {});
  for (std::size_t size = 0; size + 2 < text.size(); size += 97)
    EXPECT_FALSE(parse_saved_run(text.substr(0, size), "cut")) << size;
}

TEST(VerifyText, HostileNamesStayOnTheirLine) {
  VerifyInput input = exercised_input();
  input.subject.run.target.comm = "evil\n\x1b[2J";
  input.subject.run.exercise.first_failure = "\"oops\r\nwhomap verify: fixed: all is well\"";
  const std::string text = to_text(input, conclude(input, {}), {}, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  std::istringstream lines(text);
  int ci_lines = 0;
  for (std::string line; std::getline(lines, line);) ci_lines += line.starts_with("whomap verify: ") ? 1 : 0;
  EXPECT_EQ(ci_lines, 1);
}

TEST(VerifyText, FitsEightyColumnsAndHasEveryQuantity) {
  VerifyInput input = exercised_input();
  VerifyTextOptions options;
  options.plot = true;
  std::istringstream lines(to_text(input, conclude(input, {}), {}, options));
  std::string all;
  for (std::string line; std::getline(lines, line); all += line + "\n") {
    if (!line.starts_with("whomap verify: ")) {
      EXPECT_LE(line.size(), 80U) << line;
    }
  }
  for (const char* name : {"VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap", "VmPTE", "LazyFree",
                           "mappings", "threads", "processes", "operations"})
    EXPECT_NE(all.find(name), std::string::npos) << name;
}

TEST(VerifyText, ColourOnlyWhenAsked) {
  const Verdict verdict{VerdictClass::fixed, "text", ""};
  EXPECT_EQ(ci_line(verdict, false), "whomap verify: fixed: text\n");
  EXPECT_EQ(ci_line(verdict, true), "whomap verify: \x1b[1;32mfixed\x1b[0m: text\n");
}

TEST(VerifyPlot, ALeakRisesFromLeftToRight) {
  const std::string drawn = plot(dense_run([](double t) { return 100 + 10 * t; }), 100 * mib, {60, 6});
  std::istringstream lines(drawn);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 8U);
  for (const std::string& row : rows) EXPECT_LE(row.size(), 60U) << row;
  EXPECT_EQ(rows[0].find_last_not_of(' '), rows[0].rfind('o'));  // the last point is at the top right
  EXPECT_EQ(rows[0].rfind('o'), 59U);
  EXPECT_EQ(rows[5].find('o'), 11U);  // the first one at the bottom left
  EXPECT_NE(rows[0].find("700 MiB"), std::string::npos) << rows[0];
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'o'), 3);
  EXPECT_NE(rows[7].find("60.0 s"), std::string::npos);
}

TEST(VerifyPlot, NoiseBelowTheLimitLooksFlat) {
  int n = 0;
  const std::string drawn = plot(dense_run([&](double) { return 900.0 + ++n % 5; }), 100 * mib, {80, 8});
  int used = 0;
  std::istringstream lines(drawn);
  for (std::string line; std::getline(lines, line);)
    used += line.find('.', 12) != std::string::npos && line.find('|') == 10 ? 1 : 0;
  EXPECT_LE(used, 2) << drawn;
}

TEST(VerifyPlot, HasNothingToDrawOfOneMeasurement) {
  EXPECT_EQ(plot(run_of({}), mib, {}), "");
  EXPECT_EQ(plot(run_of({at(0, 1, true)}), mib, {}), "");
  EXPECT_EQ(plot(run_of({at(0, 1, true), at(0, 2, true)}), mib, {}), "");
}

}  // namespace
}  // namespace whomap
