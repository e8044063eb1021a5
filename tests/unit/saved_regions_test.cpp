// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/base/files.h"
#include "core/regions/pmap_text.h"
#include "core/regions/saved_regions.h"

namespace whomap {
namespace {

std::string fixture(const std::string& name) {
  const auto text = read_file(TEST_DATA_DIR "/import/" + name);
  EXPECT_TRUE(text.has_value());
  return text.value_or("");
}

// pmap ran while the process went on: what did not move is the same in both.
TEST(SavedRegions, PmapGivesWhatMapsGives) {
  const std::vector<Snapshot> maps = snapshots_from_text(fixture("maps.txt"));
  ASSERT_EQ(maps.size(), 1U);
  for (const char* name : {"pmap_X.txt", "pmap_XX.txt", "pmap_x.txt"}) {
    SCOPED_TRACE(name);
    const std::vector<Snapshot> pmap = snapshots_from_pmap(fixture(name));
    ASSERT_EQ(pmap.size(), 1U);
    EXPECT_TRUE(pmap[0].unparsed.empty()) << pmap[0].unparsed.front();
    EXPECT_TRUE(pmap[0].without_smaps.empty());
    ASSERT_EQ(pmap[0].regions.size(), maps[0].regions.size());
    int equal = 0;
    for (std::size_t i = 0; i < maps[0].regions.size(); ++i) {
      const Vma& want = maps[0].regions[i].vma;
      const Vma& got = pmap[0].regions[i].vma;
      if (want.range() != got.range()) continue;
      ++equal;
      EXPECT_EQ(got.readable, want.readable);
      EXPECT_EQ(got.writable, want.writable);
      EXPECT_EQ(got.executable, want.executable) << i;
      if (std::string_view(name) != "pmap_x.txt") {
        EXPECT_EQ(got.inode, want.inode);
        EXPECT_EQ(got.offset, want.offset);
      }
      const std::string_view file = std::string_view(want.name).substr(want.name.rfind('/') + 1);
      if (want.inode != 0 && !want.name.starts_with("/SYSV")) {
        EXPECT_EQ(got.name, file);
      }
    }
    EXPECT_GE(equal, 28);
  }
  EXPECT_EQ(snapshots_from_pmap(fixture("pmap_XX.txt"))[0].regions[0].vm_flags, "rd mr mw me");
  EXPECT_EQ(snapshots_from_pmap(fixture("pmap_X.txt"))[0].regions[6].rss, 5564U << 10);
}

TEST(SavedRegions, SeveralInOneFile) {
  EXPECT_EQ(snapshots_from_pmap(fixture("pmap_X.txt") + fixture("pmap_XX.txt")).size(), 2U);
  const std::string maps = fixture("maps.txt");
  EXPECT_EQ(snapshots_from_text(maps + maps + "\n" + maps).size(), 3U);
  // A VMA that merged while the file was read comes again.
  const std::vector<Snapshot> one =
      snapshots_from_text("2000-3000 rw-p 00000000 00:00 0 \n1000-3000 rw-p 00000000 00:00 0 \n");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].overlaps, 1U);
}

TEST(SavedRegions, DamagedPmapLinesAreKept) {
  const std::vector<Snapshot> pmap = snapshots_from_pmap(
      "12: ./a b\n  Address Perm Offset Device Inode Size Rss Mapping\n"
      "  1000 rw-p 00000000 00:00 0 4 4 with spaces in it\n"
      "  1000 rw-p 00000000 00:00 0 4 4 again\n  zz rw-p 0 00:00 0 4 4 bad\n  3000 rw-p 00000000 00:00 0 0 0 "
      "empty\n"
      "  5000 rw-p 00000000 00:00 0 99999999999999999999 4 large\n  6000 rw-");
  ASSERT_EQ(pmap.size(), 1U);
  ASSERT_EQ(pmap[0].regions.size(), 1U);
  EXPECT_EQ(pmap[0].regions[0].vma.name, "with spaces in it");
  EXPECT_EQ(pmap[0].unparsed.size(), 5U);
  EXPECT_TRUE(snapshots_from_pmap("").empty());
}

}  // namespace
}  // namespace whomap
