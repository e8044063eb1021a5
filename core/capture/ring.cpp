// SPDX-License-Identifier: Apache-2.0
#include "core/capture/ring.h"

#include <fmt/format.h>

#include <bit>
#include <new>

namespace whomap {
namespace {

constexpr std::uint64_t page = 4096;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Result<RingShape> RingShape::of(const RingOptions& options) {
  constexpr std::uint64_t most_slots = 1U << 24, most_stack_bytes = 1U << 24, most_ranges = 1U << 24;
  if (!std::has_single_bit(options.slot_count) || options.slot_count > most_slots)
    return fail(ErrorCode::usage, fmt::format("a ring cannot have {} slots", options.slot_count),
                fmt::format("give a power of two up to {}", most_slots));
  if (options.stack_bytes == 0 || options.stack_bytes % 64 != 0 || options.stack_bytes > most_stack_bytes)
    return fail(ErrorCode::usage, fmt::format("a slot cannot hold {} bytes of stack", options.stack_bytes),
                fmt::format("give a multiple of 64 up to {}", most_stack_bytes));
  if (options.range_capacity == 0 || options.range_capacity > most_ranges)
    return fail(ErrorCode::usage, fmt::format("no table of {} stacks", options.range_capacity),
                fmt::format("give 1 to {}", most_ranges));
  RingShape shape;
  shape.options = options;
  shape.states = page;
  shape.tables = round_up(shape.states + options.slot_count * sizeof(std::uint64_t), page);
  shape.table_bytes = round_up(WHOMAP_TABLE_RANGES + options.range_capacity * sizeof(StackRange), page);
  shape.slots = shape.tables + 2 * shape.table_bytes;
  shape.slot_bytes = WHOMAP_SLOT_STACK + options.stack_bytes;
  shape.bytes = round_up(shape.slots + options.slot_count * shape.slot_bytes, page);
  return shape;
}

void format_ring(std::span<std::byte> ring, const RingShape& shape) {
  auto* head = new (ring.data()) RingHead{};
  head->magic = ring_magic;
  head->slot_count = shape.options.slot_count;
  head->stack_bytes = shape.options.stack_bytes;
  head->range_capacity = shape.options.range_capacity;
  // State words of 0 are free; claims start at 1, so that no claim's state looks like a fresh slot's.
  head->claims = 1;
  head->current_table = shape.tables;
}

RecordSettings record_settings(std::uint64_t ring, const RingShape& shape, const RecordOptions& options) {
  RecordSettings settings;
  settings.tsc_usable = options.tsc_usable ? 1 : 0;
  settings.thread_base_usable = options.thread_base_usable ? 1 : 0;
  settings.rate_limited = options.rate_limited ? 1 : 0;
  settings.ring = ring;
  settings.ring_bytes = shape.bytes;
  settings.states = ring + shape.states;
  settings.slots = ring + shape.slots;
  settings.slot_bytes = shape.slot_bytes;
  settings.slot_mask = shape.options.slot_count - 1;
  settings.stack_bytes = shape.options.stack_bytes;
  settings.minimum_length = options.minimum_length;
  settings.sample_interval = std::bit_floor(options.sample_interval);
  settings.sample_mask = settings.sample_interval == 0 ? 0 : settings.sample_interval - 1;
  return settings;
}

}  // namespace whomap
