// SPDX-License-Identifier: Apache-2.0
#include "core/trace/event_line.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace whomap {
namespace {

bool same(const TraceEvent& left, const TraceEvent& right) {
  return left.stack == right.stack && left.call.enter_ns == right.call.enter_ns &&
         left.call.exit_ns == right.call.exit_ns && left.call.tid == right.call.tid &&
         left.call.number == right.call.number && left.call.arguments == right.call.arguments &&
         left.call.result == right.call.result && left.call.site == right.call.site;
}

std::string line_of(const TraceEvent& event) {
  std::string line;
  append_event_line(line, event);
  EXPECT_TRUE(line.ends_with("}\n"));
  line.pop_back();
  return line;
}

TEST(EventLine, IsWhatTheFormatSays) {
  TraceEvent event;
  event.call = {1, 2, 3, 11, {0x7f0000000000, 8192}, 0, 4};
  event.stack = 5;
  EXPECT_EQ(
      line_of(event),
      R"({"type":"event","enter_ns":1,"exit_ns":2,"tid":3,"call":"munmap","args":["0x7f0000000000","0x2000"],)"
      R"("result":"0x0","site":4,"stack":5})");
}

TEST(EventLine, BothParsersGiveBackWhatWasWritten) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 5'000; ++i) {
    TraceEvent event;
    CallEvent& call = event.call;
    call.exit_ns = random() >> (random() % 64);
    call.enter_ns = call.exit_ns - std::min(call.exit_ns, random() >> (random() % 64));
    call.tid = static_cast<pid_t>(random() % 4194304);
    constexpr std::int64_t numbers[] = {9, 11, 25, 12, 10, 28, 30, 67, 231, 0};
    call.number = numbers[random() % 10];
    const bool known = call.number != 231 && call.number != 0;
    for (std::size_t k = 0; k < (known ? 1U : 6U); ++k) call.arguments[k] = random() >> (random() % 64);
    call.result = i % 3 == 0 ? static_cast<std::uint64_t>(-12) : random();
    call.site = static_cast<std::uint32_t>(random());
    event.stack = static_cast<std::uint32_t>(random());
    const std::string line = line_of(event);
    const auto fast = parse_event_line(line);
    ASSERT_TRUE(fast.has_value()) << line;
    EXPECT_TRUE(same(*fast, event)) << line;
    const auto slow = event_from_json(nlohmann::json::parse(line));
    ASSERT_TRUE(slow.has_value()) << line;
    EXPECT_TRUE(same(*slow, event)) << line;
  }
}

/// Any single byte changed: the fast parser may refuse, but where it accepts it must agree with the slow one.
TEST(EventLine, TheFastParserAcceptsNothingThatTheSlowOneReadsDifferently) {
  TraceEvent event;
  event.call = {1000, 2000, 33, 9, {0, 0x2000, 3, 0x22, ~std::uint64_t{0}, 0}, 0x7f0000000000, 4};
  event.stack = 50;
  const std::string line = line_of(event);
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = line;
      changed[at] = static_cast<char>(byte);
      const auto fast = parse_event_line(changed);
      if (!fast) continue;
      ++accepted;
      const nlohmann::json json = nlohmann::json::parse(changed, nullptr, false);
      ASSERT_FALSE(json.is_discarded()) << changed;
      const auto slow = event_from_json(json);
      ASSERT_TRUE(slow.has_value()) << changed;
      EXPECT_TRUE(same(*fast, *slow)) << changed;
    }
  }
  EXPECT_GT(accepted, line.size());
}

// Digits are read eight at a time: every length, with every byte behind them.
TEST(EventLine, NumbersOfEveryLength) {
  TraceEvent event;
  event.call = {0, 0, 1, 9, {0, 0x1000, 3, 0x22, 0, 0}, 0x1000, 1};
  for (std::uint64_t ns = 1, digits = 1; digits <= 20; ++digits, ns = ns * 10 + digits % 10) {
    event.call.enter_ns = event.call.exit_ns = ns;
    const auto read = parse_event_line(line_of(event));
    ASSERT_TRUE(read.has_value()) << ns;
    EXPECT_EQ(read->call.exit_ns, ns);
  }
  const auto with_exit = [&](const std::string& number) {
    event.call.enter_ns = 0;
    event.call.exit_ns = 7;
    std::string line = line_of(event);
    const std::string member = "\"exit_ns\":";
    return line.replace(line.find(member) + member.size(), 1, number);
  };
  EXPECT_EQ(parse_event_line(with_exit("18446744073709551615"))->call.exit_ns, ~std::uint64_t{0});
  for (const char* number : {"18446744073709551616", "99999999999999999999", "100000000000000000000000000",
                             "", "007", "-1", "1.5", "1e3", "+1", "1234567/", "1234567:", "12345678;", " 1"})
    EXPECT_FALSE(parse_event_line(with_exit(number)).has_value()) << number;
}

TEST(EventLine, EveryCutIsRefused) {
  TraceEvent event;
  event.call = {1000, 2000, 33, 9, {0, 0x2000, 3, 0x22, ~std::uint64_t{0}, 0}, 0x7f0000000000, 4};
  const std::string line = line_of(event);
  for (std::size_t length = 0; length < line.size(); ++length) {
    // A copy of its own, so that the sanitizer sees a read past the end.
    const std::string cut(line, 0, length);
    EXPECT_FALSE(parse_event_line(cut).has_value()) << cut;
    EXPECT_FALSE(parse_event_line(cut + "}").has_value() && length + 1 != line.size()) << cut;
  }
}

TEST(EventLine, WrongTypesAndRangesAreDamage) {
  for (
      const char* text :
      {R"({"exit_ns":-1,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":1})",
       R"({"exit_ns":1.5,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":99999999999,"call":"mmap","args":[],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"open","args":[],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":null,"args":[],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":{},"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":[1],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":["0x0","0x0","0x0","0x0","0x0","0x0","0x0"],"result":"0x0","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":[],"result":0,"stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":[],"result":"0x1ffffffffffffffff","stack":1})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":4294967296})",
       R"({"exit_ns":1,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":"1"})",
       R"({"exit_ns":1,"enter_ns":2,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":1})", R"([1,2,3])",
       "7"})
    EXPECT_FALSE(event_from_json(nlohmann::json::parse(text)).has_value()) << text;
  // Where only the return was seen, there is no entry.
  const auto read = event_from_json(nlohmann::json::parse(
      R"({"exit_ns":7,"tid":1,"call":"mmap","args":[],"result":"0x0","stack":1,"colour":"green"})"));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->call.enter_ns, 7U);
}

}  // namespace
}  // namespace whomap
