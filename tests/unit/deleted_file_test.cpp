// SPDX-License-Identifier: Apache-2.0
// Deleted, or only named so: told by the file behind the mapping.
#include "core/process/deleted_file.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/unique_fd.h"
#include "core/process/statm.h"
#include "core/regions/classes.h"
#include "core/regions/snapshot.h"

namespace whomap {
namespace {

class DeletedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::canonical(testing::TempDir()).string() +
              fmt::format("/whomap-deleted-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    for (void* const at : mapped_) ::munmap(at, 4096);
    std::filesystem::remove_all(folder_);
  }

  /// A page of a new file; the mapping's address.
  std::uint64_t map(const std::string& name) {
    const UniqueFd file(::open((folder_ + "/" + name).c_str(), O_RDWR | O_CREAT, 0600));
    EXPECT_EQ(::ftruncate(file.get(), 4096), 0);
    void* const at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    mapped_.push_back(at);
    return reinterpret_cast<std::uint64_t>(at);
  }

  [[nodiscard]] Vma vma_at(std::uint64_t address) const {
    const auto list = read_maps(::getpid());
    const Vma* const found = list ? find_vma(list->vmas, address) : nullptr;
    EXPECT_NE(found, nullptr);
    return found != nullptr ? *found : Vma{};
  }

  [[nodiscard]] std::optional<Deleted> look(std::uint64_t address) const {
    return DeletedFiles(::getpid()).look(vma_at(address));
  }

  void remove(const std::string& name) const { ASSERT_EQ(::unlink((folder_ + "/" + name).c_str()), 0); }

  std::string folder_;
  std::vector<void*> mapped_;
};

TEST_F(DeletedFileTest, AFileOfThatNameIsNotDeleted) {
  const std::uint64_t plain = map("x"), named_so = map("y (deleted)"), with_newline = map("a\nb (deleted)");
  EXPECT_EQ(look(plain), Deleted::no);
  EXPECT_EQ(deleted_by_name(vma_at(named_so)), Deleted::unknown);
  EXPECT_EQ(look(named_so), Deleted::no);
  EXPECT_EQ(look(with_newline), Deleted::no);
}

TEST_F(DeletedFileTest, ADeletedOneIs) {
  const std::uint64_t plain = map("x"), named_so = map("y (deleted)");
  remove("x");
  remove("y (deleted)");
  EXPECT_EQ(look(plain), Deleted::yes);
  EXPECT_TRUE(vma_at(named_so).name.ends_with("y (deleted) (deleted)"));
  EXPECT_EQ(look(named_so), Deleted::yes);
}

TEST_F(DeletedFileTest, ANameThatIsGoneThoughTheFileHasAnother) {
  const std::uint64_t at = map("x");
  std::filesystem::create_hard_link(folder_ + "/x", folder_ + "/z");
  remove("x");
  EXPECT_EQ(look(at), Deleted::yes);
}

TEST_F(DeletedFileTest, OfAProcessThatIsGoneNothingIsKnown) {
  const std::uint64_t at = map("x");
  remove("x");
  const Vma vma = vma_at(at);
  constexpr pid_t none = 1 << 30;  // above any limit of pids
  EXPECT_EQ(DeletedFiles(none).look(vma), Deleted::unknown);
}

TEST_F(DeletedFileTest, SnapshotsAndTheirJsonSayIt) {
  const std::uint64_t gone = map("x"), named_so = map("y (deleted)");
  remove("x");
  const pid_t child = ::fork();  // has the same mappings
  if (child == 0)
    for (;;) ::pause();
  const auto target = Target::open(child);
  const auto snapshot = target ? take_snapshot(*target) : tl::make_unexpected(target.error());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(snapshot) << to_line(snapshot.error());
  const auto region_at = [&](std::uint64_t address) {
    return *std::find_if(snapshot->regions.begin(), snapshot->regions.end(),
                         [&](const Region& each) { return each.vma.range().contains(address); });
  };
  EXPECT_EQ(region_at(gone).deleted, Deleted::yes);
  EXPECT_EQ(region_at(named_so).deleted, Deleted::no);
  EXPECT_EQ(traits(region_at(gone)), (std::vector<std::string>{"its file has been deleted"}));
  for (const std::uint64_t address : {gone, named_so}) {
    const nlohmann::json json = nlohmann::json::parse(to_json(region_at(address)).dump());
    EXPECT_EQ(json["deleted"], address == gone);
    EXPECT_EQ(region_from_json(json)->deleted, region_at(address).deleted);
  }
  // From a text alone it cannot be told; anonymous memory has no file.
  const Snapshot text = snapshot_from_text(
      "1000-2000 r--s 00000000 08:01 7 /x (deleted)\n2000-3000 rw-p 00000000 00:00 0 [anon:y (deleted)]\n");
  EXPECT_EQ(text.regions[0].deleted, Deleted::unknown);
  EXPECT_EQ(text.regions[1].deleted, std::nullopt);
  const nlohmann::json json = nlohmann::json::parse(to_json(text.regions[0]).dump());
  EXPECT_TRUE(json["deleted"].is_null());
  EXPECT_EQ(region_from_json(json)->deleted, Deleted::unknown);
}

TEST(Statm, SevenNumbersOfPages) {
  const auto statm = parse_statm("3401 920 672 4 0 333 0\n");
  ASSERT_TRUE(statm);
  EXPECT_EQ(statm->size, 3401U);
  EXPECT_EQ(statm->resident, 920U);
  EXPECT_EQ(statm->shared, 672U);
  EXPECT_EQ(statm->text, 4U);
  EXPECT_EQ(statm->data, 333U);
  EXPECT_TRUE(parse_statm("1 2 3 4 5 6 7 8\n"));
  for (const std::string_view text : {"", "\n", "1 2 3 4 5 6", "1 2 3 4 5 6 x", "1 2 3 4 5 6 7x",
                                      "-1 2 3 4 5 6 7", "1 2 3 4 5 6 18446744073709551616"})
    EXPECT_FALSE(parse_statm(text)) << text;
  const auto own = read_statm(::getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(own->size, own->resident);
}

}  // namespace
}  // namespace whomap
