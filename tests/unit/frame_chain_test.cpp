// SPDX-License-Identifier: Apache-2.0
#include "core/capture/frame_chain.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace whomap {
namespace {

constexpr std::uint64_t address = 0x7FFF00001000;
constexpr std::uint64_t elsewhere = 0xC000002000;

std::optional<std::uint64_t> follow(std::uint64_t frame_pointer, const std::vector<std::uint64_t>& words) {
  return frame_on_other_stack(frame_pointer, address, std::as_bytes(std::span(words)));
}

TEST(FrameChain, LeadsToTheOtherStack) {
  EXPECT_EQ(follow(address, {address + 32, 1, 2, 3, elsewhere, 5}), elsewhere);
}

// Stacks that Go allocates lie side by side.
TEST(FrameChain, TheOtherStackMayBeNear) {
  EXPECT_EQ(follow(address, {address + 16, 1, address + 0x8000, 3}), address + 0x8000);
  EXPECT_EQ(follow(address, {address + 16, 1, address - 0x8000, 3}), address - 0x8000);
}

TEST(FrameChain, EndsOnItsOwnStack) {
  EXPECT_FALSE(follow(address, {address + 32, 1, 2, 3, 0, 5}));
  EXPECT_FALSE(follow(address + 16, {0, 1, elsewhere}));  // half of the pair
}

TEST(FrameChain, IsNoneWithoutFramePointers) {
  EXPECT_FALSE(follow(elsewhere, {address + 32, 1, 2}));  // any value, before the first link
  EXPECT_FALSE(follow(address + 1, {elsewhere, 1}));
  EXPECT_FALSE(follow(address, {elsewhere + 4, 1}));
  EXPECT_FALSE(follow(address, {~std::uint64_t{7}, 1}));
  EXPECT_FALSE(follow(0, {elsewhere, 1}));
  // In circles.
  EXPECT_FALSE(follow(address, {address, 1}));
  EXPECT_FALSE(follow(address, {address + 16, 1, address, 1}));
  EXPECT_FALSE(follow(address, {}));
}

}  // namespace
}  // namespace whomap
