// SPDX-License-Identifier: Apache-2.0
// The target can write anything into the ring: reading it must stay inside it, and end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/capture/ring_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whomap;
  static const RingShape shape =
      RingShape::of({.slot_count = 4, .stack_bytes = 64, .range_capacity = 1}).value();
  std::vector<std::uint64_t> memory(shape.bytes / sizeof(std::uint64_t));
  auto* ring = reinterpret_cast<std::byte*>(memory.data());
  // The parts that are read, one after the other: state words, then slots, then the head.
  std::size_t taken = 0;
  const auto fill = [&](std::uint64_t offset, std::uint64_t bytes) {
    const std::size_t count = std::min<std::size_t>(bytes, size - taken);
    std::memcpy(ring + offset, data + taken, count);
    taken += count;
  };
  fill(shape.states, 4 * sizeof(std::uint64_t));
  fill(shape.slots, 4 * shape.slot_bytes);
  fill(0, sizeof(RingHead));
  RingReader reader({ring, shape.bytes}, shape,
                    {.slot_timeout_ns = 1000,
                     .calls_per_second = 10,
                     .return_address_of = [](std::uint32_t site) { return std::uint64_t{site} & 0xFFU; }});
  const auto take = [&](RingCapture& capture) {
    if (capture.capture.stack.bytes.size() > shape.options.stack_bytes) std::abort();
  };
  for (const std::uint64_t now : {1U, 1500U, 3'000'000U}) reader.poll(now, take);
  reader.finish(4'000'000, take);
  reader.reclaim_given_up();
  return 0;
}
