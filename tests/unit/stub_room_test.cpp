// SPDX-License-Identifier: Apache-2.0
// Where a stub's jump can go, and where not.
#include <gtest/gtest.h>

#include "core/plan/stub_room.h"

namespace whomap {
namespace {

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

TEST(StubRooms, TheInstructionOfFiveBytesBeforeTheCall) {
  const StubRoom room = room_in({0xB8, 9, 0, 0, 0, 0x0F, 0x05, 0xC3}, 5);
  EXPECT_TRUE(room.possible) << room.reason;
  EXPECT_EQ(room.address, 0x401000U);
  EXPECT_EQ(room.length, 5);
  // Shorter ones in between move along.
  const StubRoom moved = room_in({0xB8, 9, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05, 0xC3}, 7);
  EXPECT_TRUE(moved.possible) << moved.reason;
  EXPECT_EQ(moved.code.size(), 7U);
}

TEST(StubRooms, NoRoomAndWhy) {
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

}  // namespace
}  // namespace whomap
