// SPDX-License-Identifier: Apache-2.0
// Where stubs may lie, where a jump may go, and what is written down about it.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/plan/stub_room.h"
#include "core/stub/placement.h"
#include "core/stub/stub_state.h"

namespace whomap {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

Vma vma(std::uint64_t start, std::uint64_t end, std::string name, std::uint64_t inode = 0) {
  Vma each;
  each.start = start;
  each.end = end;
  each.name = std::move(name);
  each.inode = inode;
  return each;
}

std::vector<Vma> usual_process() {
  return {vma(0x555555554000, 0x555555556000, "/bin/x", 1), vma(0x555555577000, 0x555555598000, "[heap]"),
          vma(0x7F0000000000, 0x7F0000200000, "/lib/libc.so", 2),
          vma(0x7F0000400000, 0x7F0000430000, "/lib/ld.so", 3),
          vma(0x7FFF00000000, 0x7FFF00021000, "[stack]")};
}

TEST(StubPlacement, OnePlaceForLibrariesAboveThemAndOneForTheProgram) {
  const std::vector<std::uint64_t> sites{0x555555555000, 0x7F0000100000, 0x7F0000410000};
  const Placement placement = find_places(usual_process(), sites, 0x10000, 4096);
  EXPECT_TRUE(placement.unreachable.empty());
  ASSERT_EQ(placement.neighbourhoods.size(), 2U);
  const Neighbourhood& program = placement.neighbourhoods[0];
  EXPECT_EQ(program.served, (std::vector<std::size_t>{0}));
  // Neither right above the heap nor within what it may grow into.
  EXPECT_TRUE(program.place < 0x555555554000 || program.place >= 0x555555598000 + gib)
      << std::hex << program.place;
  EXPECT_LT(program.place > 0x555555555000 ? program.place - 0x555555555000 : 0x555555555000 - program.place,
            2 * gib);
  const Neighbourhood& libraries = placement.neighbourhoods[1];
  EXPECT_EQ(libraries.served, (std::vector<std::size_t>{1, 2}));
  EXPECT_GE(libraries.place, 0x7F0000430000U + 65536);
  EXPECT_LT(libraries.place, 0x7F0000430000U + gib) << "above the libraries, where the kernel maps last";
  EXPECT_EQ(libraries.place % 4096, 0U);
}

TEST(StubPlacement, AStaticProgramAtALowAddress) {
  const std::vector<Vma> vmas{vma(0x400000, 0x500000, "/bin/static", 1), vma(0x1C00000, 0x1D00000, "[heap]"),
                              vma(0x7FFF00000000, 0x7FFF00021000, "[stack]")};
  const std::vector<std::uint64_t> sites{0x410000};
  const Placement placement = find_places(vmas, sites, 0x10000, 4096);
  ASSERT_EQ(placement.neighbourhoods.size(), 1U);
  EXPECT_GE(placement.neighbourhoods[0].place, 0x1D00000 + gib);
  EXPECT_LT(placement.neighbourhoods[0].place + 0x10000, 0x410000 + 2 * gib);
}

TEST(StubPlacement, NoFreeMemoryWithinReachIsSaid) {
  const std::vector<Vma> vmas{vma(0x100000, 0x700000000000, "/big", 1)};
  const std::vector<std::uint64_t> sites{0x300000000000};
  const Placement placement = find_places(vmas, sites, 0x10000, 4096);
  EXPECT_TRUE(placement.neighbourhoods.empty());
  EXPECT_EQ(placement.unreachable, (std::vector<std::size_t>{0}));
}

/// The rooms of all calls in `bytes`, taken for a function that begins with them.
StubRoom room_in(std::vector<std::uint8_t> bytes, std::uint64_t call_offset, bool entry_known = true) {
  constexpr std::uint64_t base = 0x401000;
  const std::size_t size = bytes.size();
  const ModuleCode module(CodeView::of_bytes(base, std::move(bytes)), nullptr, x86_64, 0, "/x", "");
  CodeSite site;
  site.address = base + call_offset;
  site.next = site.address + 2;
  site.bounds.range = {base, base + size};
  site.bounds.entry_known = entry_known;
  site.bounds.name = "f";
  return find_stub_rooms(module, {site}).front();
}

TEST(StubRoomTest, TheInstructionOfFiveBytesBeforeTheCall) {
  const StubRoom room = room_in({0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xC3}, 5);
  EXPECT_TRUE(room.possible) << room.reason;
  EXPECT_EQ(room.address, 0x401000U);
  EXPECT_EQ(room.length, 5);
  // Shorter ones in between move along.
  const StubRoom moved = room_in({0xB8, 9, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05, 0xC3}, 7);
  EXPECT_TRUE(moved.possible) << moved.reason;
  EXPECT_EQ(moved.code.size(), 7U);
}

TEST(StubRoomTest, NoRoomAndWhy) {
  EXPECT_FALSE(room_in({0x31, 0xFF, 0x0F, 0x05, 0xC3}, 2).possible) << "nothing of 5 bytes";
  EXPECT_FALSE(room_in({0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xC3}, 5, false).possible) << "no known boundary";
  EXPECT_FALSE(room_in({0xB8, 9, 0, 0, 0, 0x75, 0x00, 0x0F, 0x05, 0xC3}, 7).possible)
      << "a branch in between";
  EXPECT_FALSE(room_in({0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xEB, 0xFC}, 5).possible) << "a jump back to the call";
  EXPECT_FALSE(room_in({0xB8, 9, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05, 0xE9, 0xF7, 0xFF, 0xFF, 0xFF}, 7).possible)
      << "a long jump between the two";
  EXPECT_FALSE(room_in({0xFF, 0xE0, 0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xC3}, 7).possible) << "a jump to anywhere";
  EXPECT_TRUE(room_in({0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xEB, 0xF7}, 5).possible) << "a loop over all of it";
  EXPECT_FALSE(room_in({0x31, 0xFF, 0x0F, 0x05, 0xC3}, 2).reason.empty());
}

class StubStateFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("whomap-state-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder_);
    ::chmod(folder_.c_str(), 0700);
    ::setenv("WHOMAP_STATE_DIR", folder_.c_str(), 1);
    state_.target = {4711, 99, "/bin/x", "x"};
    state_.nonce = std::string(32, 'a');
    state_.memory = {{0x7F0000000000, 4096, "code"}, {0x7F0000002000, 8192, "data"}};
    state_.jumps = {{3, 0x401000, {1, 2, 3, 4, 5}, {0xE9, 1, 2, 3, 4}}};
    state_.traps = {{0x7F0000000080, 3, 9}};
    state_.trap_handler = 0x7F0000000040;
    state_.old_action = std::vector<std::uint8_t>(32, 7);
  }
  void TearDown() override {
    ::unsetenv("WHOMAP_STATE_DIR");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
  StubState state_;
};

TEST_F(StubStateFiles, ComesBackAsItWasWritten) {
  ASSERT_TRUE(save(state_));
  const auto path = state_path(state_.target);
  ASSERT_TRUE(path);
  EXPECT_EQ(std::filesystem::status(*path).permissions(), std::filesystem::perms{0600});
  const auto loaded = load_state(state_.target);
  ASSERT_TRUE(loaded && *loaded);
  EXPECT_EQ(to_json(**loaded), to_json(state_));
  TargetIdentity other = state_.target;
  other.start_time = 100;  // the pid was used again
  const auto none = load_state(other);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  forget_state(state_.target);
  EXPECT_FALSE(*load_state(state_.target));
}

TEST_F(StubStateFiles, DamagedAndForeignFilesAreRefused) {
  ASSERT_TRUE(save(state_));
  const std::string path = *state_path(state_.target);
  const nlohmann::json good = nlohmann::json::parse(std::ifstream(path));
  const auto refused = [&](const std::string& text) {
    std::ofstream(path) << text;
    return !load_state(state_.target);
  };
  EXPECT_TRUE(refused("no json"));
  for (const auto& [field, value] : good.items()) {
    nlohmann::json bad = good;
    bad.erase(field);
    EXPECT_TRUE(refused(bad.dump())) << field;
  }
  nlohmann::json bad = good;
  bad["jumps"][0]["jump"] = "e9";  // shorter than the original
  EXPECT_TRUE(refused(bad.dump()));
  bad = good;
  bad["start_time"] = 100;  // written for another process
  EXPECT_TRUE(refused(bad.dump()));
}

TEST_F(StubStateFiles, AFolderThatOthersCanEnterOrALinkIsNotUsed) {
  ::chmod(folder_.c_str(), 0755);
  EXPECT_FALSE(state_folder());
  ::chmod(folder_.c_str(), 0700);
  EXPECT_TRUE(state_folder());
  const std::string link = folder_.string() + "-link";
  std::filesystem::create_symlink(folder_, link);
  ::setenv("WHOMAP_STATE_DIR", link.c_str(), 1);
  EXPECT_FALSE(state_folder());
  std::filesystem::remove(link);
}

}  // namespace
}  // namespace whomap
