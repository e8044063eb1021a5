// SPDX-License-Identifier: Apache-2.0
#include "core/match/quantity.h"

#include <gtest/gtest.h>

#include <limits>

namespace whomap {
namespace {

TEST(Quantity, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(640 << 10), "640 KiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
  EXPECT_EQ(signed_bytes_text(-4096), "-4 KiB");
  EXPECT_EQ(signed_bytes_text(4096), "+4 KiB");
  EXPECT_EQ(signed_bytes_text(0), "0 B");
  EXPECT_EQ(signed_bytes_text(std::numeric_limits<std::int64_t>::min()), "-8 EiB");
}

TEST(Quantity, WholeBytesStayInRange) {
  EXPECT_EQ(whole_bytes(-1), 0U);
  EXPECT_EQ(whole_bytes(1.5), 2U);
  EXPECT_EQ(whole_bytes(1e300), 18446744073709549568U);
  EXPECT_EQ(whole_bytes(std::numeric_limits<double>::quiet_NaN()), 0U);
}

TEST(Quantity, CountsAndShares) {
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1, "call"), "1 call");
  EXPECT_EQ(count_text(0, "call"), "0 calls");
  EXPECT_EQ(share_text(0), "0 %");
  EXPECT_EQ(share_text(1), "100 %");
  EXPECT_EQ(share_text(0.9999), "over 99.9 %");
  EXPECT_EQ(share_text(0.0001), "under 0.1 %");
  EXPECT_EQ(share_text(0.984), "98.4 %");
  EXPECT_EQ(seconds_text(10), "10.0 s");
  EXPECT_EQ(seconds_text(600), "10 min");
}

}  // namespace
}  // namespace whomap
