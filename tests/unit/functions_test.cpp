// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/elf/eh_frame.h"
#include "core/elf/functions.h"
#include "core/elf/image.h"

namespace whomap {
namespace {

/// Keeps a local function that no other file can see, and that the compiler must not inline.
__attribute__((noinline)) int hidden_function(int value) {
  asm volatile("" : "+r"(value));
  return value + 1;
}

struct Loaded {
  std::shared_ptr<const Image> image;
  std::uint64_t bias = 0;
};

/// The file that holds `address` in this process.
Loaded file_of(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  const std::string path = map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name;
  auto image = Image::from_file(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path);
  return image ? Loaded{*image, map->l_addr} : Loaded{};
}

template <class Pointer>
std::uint64_t address_of(Pointer pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

TEST(Functions, LocalFunctionHasItsOwnName) {
  ASSERT_EQ(hidden_function(1), 2);
  const Loaded self = file_of(reinterpret_cast<const void*>(&hidden_function));
  ASSERT_TRUE(self.image);
  const FunctionTable table = FunctionTable::read(self.image);
  const std::uint64_t vaddr = address_of(&hidden_function) - self.bias;
  const auto found = table.lookup(vaddr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->start, vaddr);
  EXPECT_NE(found->name.find("hidden_function"), std::string_view::npos) << found->name;
  const auto inside = table.lookup(found->end - 1);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->start, vaddr);
}

TEST(Functions, ExportedNameOfLibcWithoutUnderscores) {
  void* const mmap_function = ::dlsym(RTLD_DEFAULT, "mmap");
  const Loaded libc = file_of(mmap_function);
  ASSERT_TRUE(libc.image);
  const FunctionTable table = FunctionTable::read(libc.image);
  const auto found = table.lookup(address_of(mmap_function) - libc.bias);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "mmap");
  const auto names = table.names_at(found->start);
  EXPECT_NE(std::find(names.begin(), names.end(), "mmap64"), names.end());
}

/// Every address of the unwind table is in a function, and where the symbols of the file do not cover it,
/// that function has no name: above all not that of the exported symbol before it.
TEST(Functions, NoNameBeyondASymbolsSize) {
  const Loaded libc = file_of(::dlsym(RTLD_DEFAULT, "mmap"));
  ASSERT_TRUE(libc.image);
  const FunctionTable table = FunctionTable::read(libc.image);
  const auto frames = read_frame_ranges(*libc.image);
  ASSERT_GT(frames.size(), 1000U);
  std::size_t nameless = 0;
  for (const FrameRange& frame : frames) {
    const auto found = table.lookup(frame.start);
    ASSERT_TRUE(found) << std::hex << frame.start;
    ASSERT_LE(found->start, frame.start);
    ASSERT_GT(found->end, frame.start);
    if (found->name.empty()) ++nameless;
  }
  const bool stripped = table.lookup(frames.front().start)->source != BoundarySource::symbol;
  if (stripped) {
    EXPECT_GT(nameless, frames.size() / 4) << "libc has many static functions";
  }
}

TEST(Functions, FramesAreSortedAndNotEmpty) {
  const Loaded self = file_of(reinterpret_cast<const void*>(&hidden_function));
  ASSERT_TRUE(self.image);
  const auto frames = read_frame_ranges(*self.image);
  ASSERT_FALSE(frames.empty());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    EXPECT_LT(frames[i].start, frames[i].end);
    if (i != 0) {
      EXPECT_LE(frames[i - 1].start, frames[i].start);
    }
  }
}

TEST(Functions, OutsideOfAllCodeThereIsNothing) {
  const Loaded self = file_of(reinterpret_cast<const void*>(&hidden_function));
  ASSERT_TRUE(self.image);
  const FunctionTable table = FunctionTable::read(self.image);
  EXPECT_FALSE(table.lookup(0));
  EXPECT_FALSE(table.lookup(~std::uint64_t{0}));
  EXPECT_FALSE(table.gap_around(~std::uint64_t{0}));
  EXPECT_FALSE(table.is_code(0));
}

}  // namespace
}  // namespace whomap
