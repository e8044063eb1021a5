// SPDX-License-Identifier: Apache-2.0
// Where stubs may lie, and the file that says what was changed.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/stub/placement.h"
#include "core/stub/stub_state.h"

namespace whomap {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t place_size = std::uint64_t{1} << 19;

Vma vma(std::uint64_t start, std::uint64_t size, const char* name = "", std::uint64_t inode = 0) {
  Vma made;
  made.start = start;
  made.end = start + size;
  made.name = name;
  made.inode = inode;
  return made;
}

/// As of a program at its usual addresses.
std::vector<Vma> usual(std::uint64_t libraries = 0x7F0000000000) {
  return {vma(0x555555554000, 8 * page, "/bin/program", 1), vma(0x55555555C000, page, "/bin/program", 1),
          vma(0x555555600000, 33 * page, "[heap]"),         vma(libraries, 400 * page, "/lib/libc.so.6", 2),
          vma(0x7FFFFFFDE000, 33 * page, "[stack]"),        vma(0x7FFFFFFFF000, page, "[vdso]")};
}

void expect_free_and_in_reach(const std::vector<Vma>& vmas, std::uint64_t place, std::uint64_t site) {
  EXPECT_EQ(place % page, 0U);
  for (const Vma& each : vmas)
    EXPECT_TRUE(place + place_size <= each.start || place >= each.end) << each.name;
  const std::uint64_t distance = place > site ? place + place_size - site : site - place;
  EXPECT_LT(distance, 2 * gib);
}

TEST(Placement, ServesTheProgramAndTheLibraries) {
  const auto vmas = usual();
  const std::vector<std::uint64_t> sites{0x7F0000010000, 0x555555555000, 0x7F0000020000};
  const Placement placement = find_places(vmas, sites, place_size, page);
  EXPECT_TRUE(placement.unreachable.empty());
  ASSERT_EQ(placement.neighbourhoods.size(), 2U);
  for (const Neighbourhood& each : placement.neighbourhoods)
    for (const std::size_t index : each.served) expect_free_and_in_reach(vmas, each.place, sites[index]);
  EXPECT_EQ(placement.neighbourhoods[0].served, std::vector<std::size_t>{1});
  EXPECT_EQ(placement.neighbourhoods[1].served, (std::vector<std::size_t>{0, 2}));
}

TEST(Placement, LeavesRoomAboveTheHeap) {
  const auto vmas = usual();
  const Placement placement = find_places(vmas, std::vector<std::uint64_t>{0x555555555000}, place_size, page);
  ASSERT_EQ(placement.neighbourhoods.size(), 1U);
  const std::uint64_t place = placement.neighbourhoods[0].place;
  const std::uint64_t heap_end = 0x555555600000 + 33 * page;
  EXPECT_FALSE(place >= 0x555555554000 && place < heap_end + gib);
}

TEST(Placement, LeavesRoomBelowWhatMayGrowDown) {
  auto vmas = usual();
  const std::uint64_t site = 0x7FFFFF000000;  // near the stack
  vmas.insert(vmas.end() - 2, vma(site, page, "/lib/near.so", 3));
  const Placement placement = find_places(vmas, std::vector<std::uint64_t>{site}, place_size, page);
  ASSERT_EQ(placement.neighbourhoods.size(), 1U);
  const std::uint64_t place = placement.neighbourhoods[0].place;
  expect_free_and_in_reach(vmas, place, site);
  for (const Vma& each : vmas) {
    if (each.start >= place) {
      EXPECT_GE(each.start - place, 64ULL << 20) << each.name;
    }
  }
}

TEST(Placement, SaysWhatIsOutOfReach) {
  const std::uint64_t site = 0x7F0000010000;
  const std::vector<Vma> vmas{vma(0x7EFF00000000, 8 * gib, "/all/taken", 1)};
  const Placement placement = find_places(vmas, std::vector<std::uint64_t>{site}, place_size, page);
  EXPECT_TRUE(placement.neighbourhoods.empty());
  EXPECT_EQ(placement.unreachable, std::vector<std::size_t>{0});
}

TEST(Placement, OfNothingIsNothing) {
  const Placement placement = find_places(usual(), {}, place_size, page);
  EXPECT_TRUE(placement.neighbourhoods.empty() && placement.unreachable.empty());
}

StubState some_state() {
  StubState state;
  state.target = {4242, 777, "/bin/program", "program"};
  state.nonce = std::string(32, 'a');
  state.memory = {{0x7000, 4096, "code"}, {0x9000, 8192, "data"}};
  state.jumps = {{1, 0x401000, {0xB8, 9, 0, 0, 0}, {0xE9, 1, 2, 3, 4}}};
  state.traps = {{0x7050, 1, 9}};
  state.breakpoints = {{0x402000, 0x55, 12, 0x2000}};
  state.trap_words = 0xA000;
  state.syscall_address = 0x401005;
  state.trap_handler = 0x7040;
  state.action_address = 0x9800;
  state.old_action.assign(32, 7);
  return state;
}

class StateFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/whomap-state-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    base_ = name;
    folder_ = base_ / "state";
    ::setenv("WHOMAP_STATE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("WHOMAP_STATE_DIR");
    std::filesystem::remove_all(base_);
  }
  std::filesystem::path base_, folder_;
};

TEST_F(StateFile, IsReadAsWritten) {
  const StubState state = some_state();
  ASSERT_TRUE(save(state));
  struct stat there {};
  ASSERT_EQ(::stat(state_path(state.target)->c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(folder_.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777U, 0700U);
  const auto read = load_state(state.target);
  ASSERT_TRUE(read && *read);
  EXPECT_EQ(to_json(**read), to_json(state));
  forget_state(state.target);
  EXPECT_FALSE(load_state(state.target)->has_value());
}

TEST_F(StateFile, OfProcessesThatHaveEndedIsRemoved) {
  StubState alive = some_state();
  alive.target = Target::open(::getppid())->identity();
  StubState ended = some_state();
  ended.target = alive.target;
  ended.target.start_time += 1;  // an earlier process with the same pid
  ASSERT_TRUE(save(alive));
  ASSERT_TRUE(save(ended));
  std::ofstream(folder_ / "notes.txt") << "somebody's";
  forget_ended();
  EXPECT_TRUE(load_state(alive.target)->has_value());
  EXPECT_FALSE(load_state(ended.target)->has_value());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "notes.txt"));
}

TEST_F(StateFile, IsOfOneProcessOnly) {
  const StubState state = some_state();
  ASSERT_TRUE(save(state));
  TargetIdentity later = state.target;
  later.start_time = 778;
  EXPECT_FALSE(load_state(later)->has_value());
  std::filesystem::rename(*state_path(state.target), *state_path(later));
  const auto read = load_state(later);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::process_replaced);
}

TEST_F(StateFile, HostileContentIsRefused) {
  const StubState state = some_state();
  ASSERT_TRUE(save(state));
  const std::string path = *state_path(state.target);
  const std::string good = to_json(state).dump();
  const auto code_of = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    const auto read = load_state(state.target);
    return read ? ErrorCode{} : read.error().code;
  };
  ASSERT_EQ(code_of(good), ErrorCode{});
  for (std::size_t length = 0; length < good.size(); length += 7)
    EXPECT_EQ(code_of(good.substr(0, length)), ErrorCode::input_damaged) << length;
  EXPECT_EQ(code_of("[]"), ErrorCode::input_kind);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("original":"b809000000")", R"("original":"b8")"},
           {R"("jump":"e901020304")", R"("jump":"")"},
           {R"("jump":"e901020304")", R"("jump":"e90102030")"},
           {R"("address":"0x401000")", R"("address":"0x4010000000000000000")"},
           {R"("pid":4242)", R"("pid":-1)"},
           {R"("original":85)", R"("original":256)"},
           {R"("jumps":[)", R"("jumps":{}, "x":[)"},
           {R"("start_time":777)", R"("start_time":"777")"}}) {
    std::string bad = good;
    const auto at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    EXPECT_EQ(code_of(bad), ErrorCode::input_damaged) << to;
  }
}

TEST_F(StateFile, FolderMustBePrivate) {
  std::filesystem::create_directory(base_ / "other");
  ASSERT_EQ(::chmod((base_ / "other").c_str(), 0700), 0);
  std::filesystem::create_directory_symlink(base_ / "other", folder_);
  EXPECT_EQ(save(some_state()).error().code, ErrorCode::output_unwritable);
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(folder_);
  for (const mode_t mode : {0755U, 0770U, 0701U, 0777U}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    EXPECT_EQ(save(some_state()).error().code, ErrorCode::output_unwritable) << mode;
  }
  std::filesystem::remove(folder_);
  std::ofstream(folder_) << "a file";
  EXPECT_EQ(save(some_state()).error().code, ErrorCode::output_unwritable);
}

TEST_F(StateFile, NeverWritesThroughALink) {
  const auto precious = base_ / "precious";
  std::ofstream(precious) << "precious";
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  const std::string path = *state_path(some_state().target);
  std::filesystem::create_symlink(precious, path);
  std::filesystem::create_symlink(precious, path + "." + std::to_string(::getpid()));
  (void)save(some_state());
  std::string text;
  std::ifstream(precious) >> text;
  EXPECT_EQ(text, "precious");
}

}  // namespace
}  // namespace whomap
