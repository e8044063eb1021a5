// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/report/layout.h"
#include "core/report/report.h"
#include "tests/unit/match_fixture.h"

namespace whomap {
namespace {

/// The golden file, or the new text written over it where WHOMAP_UPDATE_GOLDEN is set.
std::string golden(const std::string& name, const std::string& now) {
  const std::string path = std::string(TEST_DATA_DIR) + "/report/" + name;
  if (std::getenv("WHOMAP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << now;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string without_colour(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    i = text.find('m', i);
  }
  return plain;
}

class Report : public MatchTest {
 protected:
  /// The case of the first investigation, with something of everything that a report shows.
  Answer example() {
    stacks_ = {make_stack(1, {{"libc.so.6", "syscall"},
                              {"libucm.so.0", "ucm_orig_mmap_syscall"},
                              {"libucs.so.0", ""},
                              {"libucs.so.0", "ucs_mpool_grow"},
                              {"libucs.so.0", "ucs_mpool_get_grow"},
                              {"libucs.so.0", ""},
                              {"libucm.so.0", "ucm_event_dispatch"},
                              {"libucm.so.0", "ucm_munmap"},
                              {"app", "scratch_put"},
                              {"app",
                               "std::__detail::_Function_handler<void (std::vector<std::shared_ptr<Request>, "
                               "std::allocator<std::shared_ptr<Request> > > const&), Server::handle(int)::"
                               "{lambda(auto:1)#1}>::_M_invoke(std::_Any_data const&)"},
                              {"app", "main"}}),
               make_stack(2, {{"libc.so.6", "__mmap64"}, {"app", "cache_get"}, {"app", "main"}})};
    Frame& scratch = stacks_[0].frames[8];
    scratch.file = "/home/user/src/app/requests/scratch.c";
    scratch.line = 31;
    stacks_[1].truncated = "copy ended";
    snapshots_.push_back(snapshot(region(0x1000, 0x2000, page), 0, mib));
    for (std::uint64_t i = 0; i < 50; ++i)
      mmap(area + i * mib, mib, 1, 100 + i * 190, static_cast<pid_t>(1 + i % 3));
    for (std::uint64_t i = 0; i < 3; ++i)
      mmap(area + 200 * mib + i * 16 * page, 16 * page, 2, 100 + i * 3000);
    call(9, {0, mib, 3, 0x22}, static_cast<std::uint64_t>(-12), 2, 9'000);
    snapshots_.push_back(snapshot(region(0x1000, 0x2000, page) + region(area, area + 50 * mib, 50 * mib) +
                                      region(area + 200 * mib, area + 200 * mib + 48 * page, 2 * page) +
                                      region(area + 300 * mib, area + 301 * mib, 0, "[anon:evil \x1b[31m]"),
                                  10'000, 51 * mib, 3 * mib));
    Answer answer = match();
    answer.header.plan.sites.resize(1);
    answer.header.plan.sites[0].module = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    answer.header.plan.sites[0].symbol = "syscall";
    return answer;
  }
};

TEST_F(Report, TextIsAsItWas) {
  const Answer answer = example();
  const std::string text = to_text(answer, {});
  EXPECT_EQ(text, golden("first-investigation.txt", text));
}

TEST_F(Report, ColourAddsNothingButColour) {
  const Answer answer = example();
  TextOptions options;
  const std::string plain = to_text(answer, options);
  EXPECT_EQ(plain.find('\x1b'), std::string::npos) << "a name from the target drives the terminal";
  options.color = true;
  const std::string coloured = to_text(answer, options);
  EXPECT_NE(coloured, plain);
  EXPECT_EQ(without_colour(coloured), plain);
}

TEST_F(Report, NoLineIsWiderThanTheTerminal) {
  const Answer answer = example();
  for (const int width : {40, 60, 80, 100, 132}) {
    TextOptions options;
    options.width = width;
    std::istringstream lines(to_text(answer, options));
    for (std::string line; std::getline(lines, line);) {
      if (width < 80 && line.find('-') != std::string::npos && line.starts_with("  7f"))
        continue;  // the regions table
      EXPECT_LE(columns(line), static_cast<std::size_t>(std::max(width, 66))) << width << ": " << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

TEST_F(Report, TheAnswerComesFirst) {
  const std::string text = to_text(example(), {});
  EXPECT_TRUE(text.starts_with("LEAK: ucs_mpool_grow (libucs.so.0) maps memory")) << text.substr(0, 80);
}

TEST_F(Report, AnAdviceIsPrintedOnceAndReferredTo) {
  Answer answer = example();
  const Advice advice{"S99", "a cause", "a remedy", "a hazard", "a source", "A"};
  Advice other = advice;
  other.cause = "a cause, of another version";
  answer.stacks[0].advice = {advice};
  answer.stacks[1].advice = {advice, other};
  answer.regions[0].advice = {advice};
  const std::string text = to_text(answer, {});
  const auto count = [&](std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("a cause [documented]"), 1U) << text;
  EXPECT_EQ(count("a cause, of another version [documented]"), 1U) << text;
  EXPECT_EQ(count("a remedy"), 2U);
  EXPECT_EQ(count("S99     as at #1"), 1U) << text;
  EXPECT_EQ(to_json(answer)["stacks"][1]["advice"].size(), 2U);
}

TEST_F(Report, AddressesOfALogWithoutAMapAreNoOffsets) {
  Answer answer = example();
  Frame& frame = answer.stacks[0].stack.frames[1];
  frame.run_time = true;
  frame.offset = 0x7ffc61759ac2;
  const std::string text = to_text(answer, {});
  EXPECT_EQ(text.find("+0x7ffc61759ac2"), std::string::npos) << text;
}

TEST_F(Report, JsonHasTheNamesOfTheFormat) {
  const nlohmann::ordered_json json = to_json(example());
  const auto keys = [](const nlohmann::ordered_json& object) {
    std::string names;
    for (const auto& [name, value] : object.items()) names += name + " ";
    return names;
  };
  EXPECT_TRUE(keys(json).starts_with("format version target trace growth verdict stacks regions "))
      << keys(json);
  EXPECT_EQ(keys(json["target"]), "pid start_time exe threads ");
  EXPECT_EQ(keys(json["trace"]),
            "engine seconds stopped_ms longest_stop_ms hits events failed_calls lost mispaired "
            "predicted_slowdown ");
  EXPECT_TRUE(keys(json["growth"])
                  .starts_with("rss_anon_bytes rss_file_bytes rss_shmem_bytes swap_bytes page_table_bytes "
                               "mapped_bytes explained_bytes unexplained_bytes "));
  EXPECT_EQ(keys(json["verdict"]), "class text ");
  EXPECT_TRUE(keys(json["stacks"][0])
                  .starts_with("id syscall live_bytes resident_bytes growth_bytes share count "
                               "bytes_per_minute class site frames truncated advice "));
  EXPECT_TRUE(keys(json["stacks"][0]["site"]).starts_with("module symbol offset dispatch "));
  EXPECT_EQ(keys(json["stacks"][0]["frames"][0]),
            "module build_id offset function file line inlined guessed ");
  EXPECT_TRUE(keys(json["regions"][0])
                  .starts_with("start end class evidence size_delta rss_delta explained_bytes stacks "));
  EXPECT_EQ(json["trace"]["stopped_ms"], nullptr);
  EXPECT_EQ(json["stacks"][0]["syscall"], "mmap");
  EXPECT_EQ(json["stacks"][0]["frames"][2]["function"], nullptr);
  EXPECT_EQ(json["stacks"][0]["truncated"], nullptr);
  EXPECT_EQ(json["stacks"][1]["truncated"], "copy ended");
  EXPECT_EQ(json["regions"][0]["start"], "0x7f0000000000");
  const auto& growth = json["growth"];
  EXPECT_EQ(growth["explained_bytes"].get<std::uint64_t>() + growth["unexplained_bytes"].get<std::uint64_t>(),
            growth["mapped_bytes"].get<std::uint64_t>());
  EXPECT_TRUE(nlohmann::json::accept(to_json_text(example())));
}

TEST_F(Report, UnknownIsNullInJson) {
  stacks_ = {make_stack(1, {{"app", "f"}})};
  mmap(area, mib, 1, 10);
  auto answer = match_trace(write(false));
  ASSERT_TRUE(answer.has_value());
  const nlohmann::ordered_json json = to_json(*answer);
  EXPECT_EQ(json["target"]["threads"], nullptr);
  EXPECT_EQ(json["trace"]["hits"], nullptr);
  EXPECT_EQ(json["trace"]["lost"], nullptr);
  EXPECT_EQ(json["trace"]["mispaired"], nullptr);
  EXPECT_EQ(json["growth"]["mapped_bytes"], nullptr);
  EXPECT_EQ(json["growth"]["rss_anon_bytes"], nullptr);
  EXPECT_EQ(json["verdict"]["class"], nullptr);
  EXPECT_EQ(json["stacks"][0]["growth_bytes"], nullptr);
  EXPECT_EQ(json["stacks"][0]["resident_bytes"], nullptr);
  EXPECT_EQ(json["stacks"][0]["site"], nullptr);
}

TEST_F(Report, FoldedStacks) {
  stacks_ = {make_stack(1, {{"libc.so.6", "mmap"}, {"app", "a;b\n"}, {"app", ""}})};
  stacks_[0].truncated = "copy ended";
  snapshots_.push_back(snapshot("", 0, mib));
  mmap(area, mib, 1, 10);
  snapshots_.push_back(snapshot(region(area, area + mib, 0), 10'000, mib));
  EXPECT_EQ(to_folded(match(), Weight::growth), "[truncated];app+0x1030;a:b\\x0a;mmap 1048576\n");
}

TEST(Layout, WrapBreaksAtSpacesAndInLongWords) {
  EXPECT_EQ(wrap("one two three four", 12, 2), "one two\n  three four\n");
  EXPECT_EQ(wrap("abcdefghijklmnopqrstuvwxyz", 12, 2), "abcdefghijkl\n  mnopqrstuv\n  wxyz\n");
  EXPECT_EQ(wrap("", 12, 2), "\n");
  EXPECT_EQ(wrap("ab cd", 12, 0, 9), "ab\ncd\n");
}

TEST(Layout, ColumnsAreCodePoints) {
  EXPECT_EQ(columns("aé€"), 3U);
  EXPECT_EQ(fit("aé€bcd", 5), "aé...");
  EXPECT_EQ(fit("aé", 4), "aé  ");
}

}  // namespace
}  // namespace whomap
