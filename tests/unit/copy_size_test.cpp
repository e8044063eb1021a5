// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/capture/copy_size.h"

namespace whomap {
namespace {

std::optional<std::size_t> see_many(CopySize& size, std::uint64_t needed) {
  std::optional<std::size_t> last;
  for (int i = 0; i < 3000; ++i)
    if (const auto changed = size.seen(needed, false)) last = changed;
  return last;
}

TEST(CopySize, GrowsAtOnceWhenAStackWasCut) {
  CopySize size;
  EXPECT_EQ(size.seen(32'000, true), max_stack_copy);
  EXPECT_EQ(size.seen(128'000, true), std::nullopt);
}

TEST(CopySize, ShrinksToTwiceTheDeepest) {
  CopySize size;
  EXPECT_EQ(size.seen(6'000, false), std::nullopt);
  EXPECT_EQ(see_many(size, 900), 12'288U);
  EXPECT_EQ(see_many(size, 900), std::nullopt);
}

TEST(CopySize, NeverBelowItsSmallest) {
  CopySize size;
  EXPECT_EQ(see_many(size, 200), CopySize::smallest);
}

TEST(CopySize, TakesNoSizeAgainThatWasTooSmall) {
  CopySize size;
  EXPECT_EQ(see_many(size, 5'000), 12'288U);
  EXPECT_EQ(size.seen(12'280, true), max_stack_copy);
  EXPECT_EQ(see_many(size, 900), 24'576U);  // twice the deepest, above what was too small
}

}  // namespace
}  // namespace whomap
