// SPDX-License-Identifier: Apache-2.0
#include "core/regions/smaps.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace whomap {
namespace {

constexpr std::string_view heap =
    "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]\n"
    "Size:                132 kB\n"
    "KernelPageSize:        4 kB\n"
    "MMUPageSize:           4 kB\n"
    "Rss:                  96 kB\n"
    "Pss:                  95 kB\n"
    "Pss_Dirty:            94 kB\n"
    "Shared_Clean:          1 kB\n"
    "Shared_Dirty:          2 kB\n"
    "Private_Clean:         3 kB\n"
    "Private_Dirty:        90 kB\n"
    "Referenced:           89 kB\n"
    "Anonymous:            88 kB\n"
    "KSM:                   0 kB\n"
    "LazyFree:              4 kB\n"
    "AnonHugePages:         0 kB\n"
    "ShmemPmdMapped:        0 kB\n"
    "FilePmdMapped:         0 kB\n"
    "Shared_Hugetlb:        0 kB\n"
    "Private_Hugetlb:       0 kB\n"
    "Swap:                  8 kB\n"
    "SwapPss:               7 kB\n"
    "Locked:                0 kB\n"
    "THPeligible:           1\n"
    "ProtectionKey:         0\n"
    "VmFlags: rd wr mr mw me ac sd \n";

TEST(Smaps, ReadsEveryFieldOfTheKernel) {
  const SmapsList list = parse_smaps(heap);
  EXPECT_TRUE(list.unparsed.empty());
  ASSERT_EQ(list.entries.size(), 1U);
  const SmapsEntry& entry = list.entries[0];
  EXPECT_EQ(entry.vma.name, "[heap]");
  EXPECT_EQ(entry.vma.start, 0x55d0c0a00000U);
  for (std::size_t i = 0; i < smaps_field_count; ++i) {
    const bool rollup_only = smaps_field_names[i] == "Pss_Anon" || smaps_field_names[i] == "Pss_File" ||
                             smaps_field_names[i] == "Pss_Shmem";
    EXPECT_NE(entry.get(static_cast<SmapsField>(i)).has_value(), rollup_only) << smaps_field_names[i];
  }
  EXPECT_EQ(entry.get(SmapsField::size), 132U << 10);
  EXPECT_EQ(entry.get(SmapsField::rss), 96U << 10);
  EXPECT_EQ(entry.get(SmapsField::anonymous), 88U << 10);
  EXPECT_EQ(entry.get(SmapsField::lazy_free), 4U << 10);
  EXPECT_EQ(entry.get(SmapsField::swap), 8U << 10);
  EXPECT_EQ(entry.get(SmapsField::thp_eligible), 1U);
  EXPECT_EQ(entry.vm_flags, "rd wr mr mw me ac sd");
  EXPECT_TRUE(entry.unknown.empty());
}

TEST(Smaps, KeepsFieldsOfNewerKernels) {
  const SmapsList list = parse_smaps(std::string(heap) + "Marvellous:         12 kB\nOdd_Flag:    yes no\n");
  ASSERT_EQ(list.entries.size(), 1U);
  const std::vector<std::pair<std::string, std::string>> expected{{"Marvellous", "12 kB"},
                                                                  {"Odd_Flag", "yes no"}};
  EXPECT_EQ(list.entries[0].unknown, expected);
}

TEST(Smaps, AFieldThatIsNotThereIsUnknownNotZero) {
  const SmapsList list = parse_smaps("1000-2000 rw-p 00000000 00:00 0 \nRss:  0 kB\n");
  ASSERT_EQ(list.entries.size(), 1U);
  EXPECT_EQ(list.entries[0].get(SmapsField::rss), 0U);
  EXPECT_EQ(list.entries[0].get(SmapsField::swap), std::nullopt);
}

TEST(Smaps, LinesOfNoKnownShapeAreKept) {
  const SmapsList list = parse_smaps(
      "Rss: 4 kB\n"  // before the first VMA
      "1000-2000 rw-p 00000000 00:00 0 \n"
      "Rss: many kB\n"
      "Pss: 18446744073709551615 kB\n"  // does not fit in bytes
      "nonsense\n"
      "3000-xyz rw-p\n"
      "Rss: 8 kB\n"  // of the VMA that did not parse
      "5000-6000 rw-p 00000000 00:00 0 \n"
      "Rss: 12 kB\n");
  ASSERT_EQ(list.entries.size(), 2U);
  EXPECT_EQ(list.entries[0].get(SmapsField::rss), std::nullopt);
  EXPECT_EQ(list.entries[1].get(SmapsField::rss), 12U << 10);
  EXPECT_EQ(list.unparsed,
            (std::vector<std::string>{"Rss: 4 kB", "Rss: many kB", "Pss: 18446744073709551615 kB", "nonsense",
                                      "3000-xyz rw-p", "Rss: 8 kB"}));
}

TEST(Smaps, ACutLastLineDoesNotLoseDigits) {
  const SmapsList list = parse_smaps("1000-2000 rw-p 00000000 00:00 0 \nRss:                1");
  ASSERT_EQ(list.entries.size(), 1U);
  EXPECT_EQ(list.entries[0].get(SmapsField::rss), std::nullopt);
  EXPECT_EQ(list.unparsed.size(), 1U);
}

TEST(Smaps, NamesThatLookLikeFields) {
  const SmapsList list = parse_smaps(
      "1000-2000 r--p 00000000 08:01 77 /tmp/Rss: 9 kB\nRss:   4 kB\n"
      "2000-3000 rw-p 00000000 00:00 0 [anon:Size: 3 kB]\nRss:   8 kB\n");
  ASSERT_EQ(list.entries.size(), 2U);
  EXPECT_EQ(list.entries[0].vma.name, "/tmp/Rss: 9 kB");
  EXPECT_EQ(list.entries[0].get(SmapsField::rss), 4U << 10);
  EXPECT_EQ(list.entries[1].vma.name, "[anon:Size: 3 kB]");
  EXPECT_TRUE(list.unparsed.empty());
}

TEST(Smaps, OwnProcessParsesWhole) {
  std::ifstream file("/proc/self/smaps");
  std::stringstream text;
  text << file.rdbuf();
  const SmapsList list = parse_smaps(text.str());
  EXPECT_TRUE(list.unparsed.empty()) << list.unparsed.front();
  ASSERT_GT(list.entries.size(), 10U);
  for (const SmapsEntry& entry : list.entries) {
    // vsyscall has no fields of its own on some kernels; all others do.
    if (entry.vma.name == "[vsyscall]") continue;
    EXPECT_EQ(entry.get(SmapsField::size), entry.vma.size());
    EXPECT_TRUE(entry.get(SmapsField::rss).has_value());
    EXPECT_TRUE(entry.unknown.empty()) << entry.unknown.front().first;
  }
}

}  // namespace
}  // namespace whomap
