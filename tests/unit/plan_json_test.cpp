// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/plan/plan.h"

namespace whomap {
namespace {

Plan sample() {
  Plan plan;
  plan.target = {4711, UINT64_MAX, "/opt/with \n newline/x", "x"};
  plan.watched = {9, 11};
  plan.notes = {"a note"};
  Site constant;
  constant.id = 0;
  constant.module = "/lib/libc.so.6";
  constant.build_id = "abcd";
  constant.symbol = "mmap";
  constant.symbol_offset = 15;
  constant.entry = 0x7fffffff1000;
  constant.syscall_address = 0x7fffffff100f;
  constant.return_address = 0x7fffffff1011;
  constant.entry_offset = 0x1000;
  constant.syscall_offset = 0x100f;
  constant.return_offset = 0x1011;
  constant.kind = NumberKind::constant;
  constant.number = 9;
  constant.numbers = {9};
  constant.proof = NumberProof{0x7fffffff100a, "mov $0x9, %eax"};
  constant.watch = WatchKind::return_breakpoint;
  constant.reason = "one stop";
  constant.code = {0xB8, 0x09, 0x00, 0x00, 0x00, 0x0F, 0x05};
  constant.code_address = 0x7fffffff100a;
  Site variable = constant;
  variable.id = 1;
  variable.kind = NumberKind::variable;
  variable.number.reset();
  variable.proof.reset();
  variable.numbers = {9, 11};
  variable.other_numbers = {10};
  variable.any_number = true;
  variable.condition_at_syscall = "$rax == 9 || $rax == 11";
  variable.watch = WatchKind::paired_breakpoints;
  plan.sites = {constant, variable};
  return plan;
}

nlohmann::json parsed(const Plan& plan) {
  return nlohmann::json::parse(to_json(plan).dump());
}

TEST(PlanJson, RoundTripIsExact) {
  const auto loaded = plan_from_json(parsed(sample()));
  ASSERT_TRUE(loaded) << to_line(loaded.error());
  EXPECT_EQ(to_json(*loaded).dump(), to_json(sample()).dump());
  EXPECT_EQ(loaded->target, sample().target);
  EXPECT_EQ(loaded->sites[0].code, sample().sites[0].code);
  EXPECT_EQ(loaded->sites[0].number, 9);
  EXPECT_FALSE(loaded->sites[1].proof);
}

TEST(PlanJson, AddressesAreHexStrings) {
  EXPECT_EQ(parsed(sample())["sites"][0]["syscall_address"], "0x7fffffff100f");
}

TEST(PlanJson, NameThatIsNotUtf8CanBeWritten) {
  Plan plan = sample();
  plan.sites[0].module = "/tmp/\xff\xfe";
  EXPECT_NO_THROW((void)to_json(plan).dump());
}

TEST(PlanJson, OtherFormatOrVersionIsRefused) {
  for (const char* const text :
       {"[]", "3", "null", "{}", R"({"format":"whomap-trace","version":1})",
        R"({"format":"whomap-plan","version":2})", R"({"format":"whomap-plan"})",
        R"({"format":"whomap-plan","version":"1"})", R"({"format":7,"version":1})"}) {
    const auto plan = plan_from_json(nlohmann::json::parse(text));
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().code, ErrorCode::input_kind) << text;
  }
}

/// Every field, taken out or given a value of the wrong type, is named and refused without an exception.
TEST(PlanJson, EveryFieldIsChecked) {
  const nlohmann::json good = parsed(sample());
  const auto refused = [](const nlohmann::json& bad, const std::string& field) {
    const auto plan = plan_from_json(bad);
    ASSERT_FALSE(plan) << field;
    EXPECT_EQ(plan.error().code, ErrorCode::input_damaged) << field;
    EXPECT_NE(plan.error().happened.find(field), std::string::npos) << plan.error().happened;
  };
  for (const auto& [field, value] : good["sites"][1].items()) {
    nlohmann::json bad = good;
    if (field != "stub") {  // plans began without it
      bad["sites"][1].erase(field);
      refused(bad, "sites[1]." + field);
    }
    bad = good;
    bad["sites"][1][field] = 1.5;
    refused(bad, "sites[1]." + field);
  }
  for (const char* const field : {"machine", "page_size", "watched", "sites", "notes"}) {
    nlohmann::json bad = good;
    bad.erase(field);
    refused(bad, field);
    bad = good;
    bad[field] = true;
    refused(bad, field);
  }
  for (const std::uint64_t size : {0UL, 1UL, 2048UL, 4097UL, 12288UL, 2UL << 20, 1UL << 63}) {
    nlohmann::json bad = good;
    bad["page_size"] = size;
    refused(bad, "page_size");
  }
  nlohmann::json large = good;
  large["page_size"] = 65536;
  EXPECT_TRUE(plan_from_json(large));
}

TEST(PlanJson, StubsAreCheckedAndMayBeMissing) {
  const nlohmann::json good = parsed(sample());
  for (const auto& [field, value] : good["sites"][0]["stub"].items()) {
    nlohmann::json bad = good;
    bad["sites"][0]["stub"].erase(field);
    const auto plan = plan_from_json(bad);
    ASSERT_FALSE(plan) << field;
    EXPECT_NE(plan.error().happened.find("sites[0].stub." + field), std::string::npos)
        << plan.error().happened;
  }
  nlohmann::json old = good;
  old["sites"][0].erase("stub");
  const auto plan = plan_from_json(old);
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->sites[0].stub.possible);
  EXPECT_FALSE(plan->sites[0].stub.reason.empty());
}

TEST(PlanJson, NumbersOutOfRangeAreRefused) {
  const nlohmann::json good = parsed(sample());
  const auto refused = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad["sites"][0][field] = value;
    EXPECT_FALSE(plan_from_json(bad)) << field << " " << value;
  };
  refused("syscall_address", "0x10000000000000000");
  refused("syscall_address", "0x");
  refused("syscall_address", "-1");
  refused("syscall_address", "0x12 ");
  refused("number", UINT64_MAX);
  refused("number", 1e300);
  refused("symbol_offset", -1);
  refused("id", std::uint64_t{1} << 32);
  refused("id", 1);
  refused("numbers", nlohmann::json::array({1, "2"}));
  refused("code", "0f0");
  refused("code", "zz");
  refused("kind", "constnat");
  refused("watch", "");
}

}  // namespace
}  // namespace whomap
