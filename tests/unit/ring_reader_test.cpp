// SPDX-License-Identifier: Apache-2.0
// The reader against rings that no stub has written.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <vector>

#include "core/capture/ring_reader.h"
#include "core/capture/stack_ranges.h"

namespace whomap {
namespace {

class WrittenRing : public ::testing::Test {
 protected:
  void write(std::uint64_t index, const SlotHead& slot, std::uint64_t state) {
    std::memcpy(bytes() + shape.slots + index * shape.slot_bytes, &slot, sizeof slot);
    std::memcpy(bytes() + shape.states + index * 8, &state, sizeof state);
  }
  std::uint64_t state(std::uint64_t index) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes() + shape.states + index * 8, sizeof value);
    return value;
  }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory.data()); }
  RingReader reader() {
    format_ring({bytes(), shape.bytes}, shape);
    reinterpret_cast<RingHead*>(bytes())->claims = 100;
    return {
        {bytes(), shape.bytes}, shape, {.slot_timeout_ns = 1000, .return_address_of = [](std::uint32_t site) {
                                          return site < 3 ? 0x1000U + site : 0U;
                                        }}};
  }

  RingShape shape = RingShape::of({.slot_count = 4, .stack_bytes = 64, .range_capacity = 16}).value();
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(shape.bytes / 8);
};

SlotHead slot_of(std::uint64_t claim) {
  SlotHead slot{};
  slot.claim = claim;
  slot.site = 1;
  slot.copy_bytes = 64;
  return slot;
}

TEST_F(WrittenRing, WhatTheTargetWroteOverIsCountedAndNotBelieved) {
  RingReader reader = this->reader();
  SlotHead wrong_size = slot_of(5), wrong_claim = slot_of(6), wrong_site = slot_of(7), wrong_end = slot_of(8);
  wrong_size.copy_bytes = 65;
  wrong_claim.claim = 1;
  wrong_site.site = 3;
  wrong_end.stack_end = 99;
  write(0, wrong_size, 5 << 2 | 2);
  write(1, wrong_claim, 6 << 2 | 2);
  write(2, wrong_site, 7 << 2 | 2);
  write(3, wrong_end, 8 << 2 | 2);
  EXPECT_EQ(reader.poll(1, [](RingCapture&) { ADD_FAILURE(); }), 0U);
  EXPECT_EQ(reader.counts().damaged, 4U);
  EXPECT_EQ(state(2), 7U << 2);
}

TEST_F(WrittenRing, OldestClaimFirstAndWhatIsNewerThanThePollWaits) {
  RingReader reader = this->reader();
  write(2, slot_of(98), 98 << 2 | 2);
  write(3, slot_of(99), 99 << 2 | 2);
  write(0, slot_of(100), 100 << 2 | 2);
  std::vector<std::uint64_t> claims;
  const auto take = [&](RingCapture& capture) {
    claims.push_back(capture.claim);
    EXPECT_EQ(capture.capture.registers.rip, 0x1001U);
    EXPECT_EQ(capture.capture.stack.bytes.size(), 64U);
  };
  EXPECT_EQ(reader.poll(1, take), 2U);
  reinterpret_cast<RingHead*>(bytes())->claims = 101;
  EXPECT_EQ(reader.poll(1, take), 1U);
  EXPECT_EQ(claims, (std::vector<std::uint64_t>{98, 99, 100}));
}

TEST_F(WrittenRing, EachOwnerHasTheWholeTimeout) {
  RingReader reader = this->reader();
  const auto none = [](RingCapture&) { ADD_FAILURE(); };
  write(0, slot_of(5), 5 << 2 | 1);
  reader.poll(10'000, none);
  write(0, slot_of(9), 9 << 2 | 1);
  reader.poll(11'500, none);
  EXPECT_EQ(reader.counts().pending, 1U);
  reader.poll(12'400, none);
  EXPECT_EQ(reader.counts().lost, 0U);
  reader.poll(12'500, none);
  EXPECT_EQ(reader.counts().lost, 1U);
  EXPECT_EQ(reader.counts().pending, 0U);
  EXPECT_EQ(state(0), 9U << 2 | 3);
  reader.reclaim_given_up();
  EXPECT_EQ(state(0), 9U << 2);
}

TEST_F(WrittenRing, AnyBytesAreRead) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    RingReader reader = this->reader();
    for (std::uint64_t& word : memory) word = random() % 4 == 0 ? random() : random() % 128;
    for (std::uint64_t now : {1U, 5000U}) reader.poll(now, [](RingCapture&) {});
    reader.finish(10'000, [](RingCapture&) {});
    reader.reclaim_given_up();
  }
}

TEST(RingShape, RefusesWhatCannotBe) {
  EXPECT_EQ(RingShape::of({.slot_count = 1000}).error().code, ErrorCode::usage);
  EXPECT_EQ(RingShape::of({.slot_count = 0}).error().code, ErrorCode::usage);
  EXPECT_EQ(RingShape::of({.stack_bytes = 100}).error().code, ErrorCode::usage);
  EXPECT_EQ(RingShape::of({.stack_bytes = 0}).error().code, ErrorCode::usage);
  EXPECT_EQ(RingShape::of({.range_capacity = 0}).error().code, ErrorCode::usage);
}

TEST(StackRanges, KnowTheMainStackAndWhereDescriptorsMayLie) {
  const auto maps = parse_maps(
      "10000-20000 r--p 00000000 08:01 7 /bin/x\n"
      "30000-40000 rw-p 00000000 00:00 0 [heap]\n"
      "50000-51000 ---p 00000000 00:00 0 \n"
      "51000-60000 rw-p 00000000 00:00 0 \n"
      "60000-70000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n"
      "70000-71000 rw-p 00000000 00:00 0 \n"
      "7f000-80000 rw-p 00000000 00:00 0 [stack]\n");
  const auto ranges = stack_ranges(maps.vmas, 0x70800);
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].start, 0x30000U);
  EXPECT_EQ(ranges[0].end, 0x40000U | StackRange::needs_thread_base);
  EXPECT_EQ(ranges[1].start, 0x51000U);
  EXPECT_EQ(ranges[2].start, 0x71000U);
  EXPECT_EQ(ranges[2].end, 0x80000U);
}

TEST(StackRanges, WhatDoesNotFitIsSaid) {
  const RingShape shape = RingShape::of({.slot_count = 4, .stack_bytes = 64, .range_capacity = 16}).value();
  std::vector<std::uint64_t> memory(shape.bytes / 8);
  StackTableWriter writer({reinterpret_cast<std::byte*>(memory.data()), shape.bytes}, shape);
  EXPECT_EQ(writer.publish(std::vector<StackRange>(16)), 0U);
  EXPECT_EQ(writer.publish(std::vector<StackRange>(20)), 4U);
}

}  // namespace
}  // namespace whomap
