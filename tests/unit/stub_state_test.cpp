// SPDX-License-Identifier: Apache-2.0
// What lies in the state folder under a state's name need not be a state.
#include "core/stub/stub_state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace whomap {
namespace {

namespace fs = std::filesystem;

class StubStateFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "whomap-state-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("WHOMAP_STATE_DIR", folder_.c_str(), 1);
    path_ = folder_ / "4194000-77.state";
  }
  void TearDown() override {
    ::unsetenv("WHOMAP_STATE_DIR");
    fs::remove_all(folder_);
  }
  void expect_refused(ErrorCode code, const std::string& words) const {
    const auto state = load_state(target_);
    ASSERT_FALSE(state) << words;
    EXPECT_EQ(state.error().code, code) << words;
    EXPECT_NE(state.error().happened.find(words), std::string::npos) << state.error().happened;
    EXPECT_NE(state.error().remedy.find(path_.string()), std::string::npos) << state.error().remedy;
  }

  TargetIdentity target_{4194000, 77, "/bin/x", "x"};
  fs::path folder_, path_;
};

TEST_F(StubStateFolder, NoFileIsNoState) {
  const auto state = load_state(target_);
  ASSERT_TRUE(state);
  EXPECT_FALSE(*state);
}

TEST_F(StubStateFolder, AFifoIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused(ErrorCode::input_damaged, "not a regular file");
}

TEST_F(StubStateFolder, ALinkIsNotFollowed) {
  fs::create_symlink("/dev/zero", path_);
  expect_refused(ErrorCode::input_damaged, "not a regular file");
}

TEST_F(StubStateFolder, AHugeFileIsNotRead) {
  std::ofstream(path_).put('{');
  fs::resize_file(path_, (std::uintmax_t{64} << 20) + 1);
  expect_refused(ErrorCode::input_damaged, "too large");
}

TEST_F(StubStateFolder, DamagedJsonSaysWhatToDo) {
  std::ofstream(path_) << "{";
  expect_refused(ErrorCode::input_damaged, "not JSON");
  std::ofstream(path_) << R"({"format":"whomap-stub-state","version":1})";
  expect_refused(ErrorCode::input_damaged, "pid");
  std::ofstream(path_) << "";
  expect_refused(ErrorCode::input_damaged, "not JSON");
}

TEST_F(StubStateFolder, WhatIsSavedIsLoaded) {
  StubState state;
  state.target = target_;
  state.nonce = std::string(32, 'a');
  ASSERT_TRUE(save(state));
  const auto loaded = load_state(target_);
  ASSERT_TRUE(loaded && *loaded);
  EXPECT_EQ((*loaded)->nonce, state.nonce);
}

TEST_F(StubStateFolder, ARelativePathIsRefused) {
  for (const char* const folder : {"state", "./state", "../state"}) {
    ::setenv("WHOMAP_STATE_DIR", folder, 1);
    const auto found = state_folder();
    ASSERT_FALSE(found) << folder;
    EXPECT_EQ(found.error().code, ErrorCode::output_unwritable);
    EXPECT_NE(found.error().happened.find("no absolute path"), std::string::npos);
    EXPECT_FALSE(fs::exists(folder));
  }
}

}  // namespace
}  // namespace whomap
