// SPDX-License-Identifier: Apache-2.0
#include "core/capture/stack_ranges.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace whomap {

std::vector<StackRange> stack_ranges(const std::vector<Vma>& maps, std::uint64_t main_thread_base) {
  std::vector<StackRange> ranges;
  std::uint64_t free_from = 0;
  for (const Vma& vma : maps) {
    const std::uint64_t below = std::exchange(free_from, vma.end);
    if (!vma.readable || !vma.writable || vma.shared || vma.file_backed()) continue;
    if (vma.name == "[stack]")
      ranges.push_back({below, vma.end});
    else if (!vma.range().contains(main_thread_base))
      ranges.push_back({vma.start, vma.end | StackRange::needs_thread_base});
  }
  return ranges;
}

std::size_t StackTableWriter::publish(std::span<const StackRange> ranges) {
  const std::size_t count = std::min<std::size_t>(ranges.size(), shape_.options.range_capacity);
  const std::uint64_t offset = shape_.tables + next_ * shape_.table_bytes;
  auto* table = reinterpret_cast<StackTable*>(ring_.data() + offset);
  auto* to = reinterpret_cast<StackRange*>(ring_.data() + offset + WHOMAP_TABLE_RANGES);
  const std::atomic_ref sequence(table->sequence);
  sequence.store(sequence.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < count; ++i) {
    std::atomic_ref(to[i].start).store(ranges[i].start, std::memory_order_relaxed);
    std::atomic_ref(to[i].end).store(ranges[i].end, std::memory_order_relaxed);
  }
  std::atomic_ref(table->count).store(count, std::memory_order_relaxed);
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  auto* head = reinterpret_cast<RingHead*>(ring_.data());
  std::atomic_ref(head->current_table).store(offset, std::memory_order_seq_cst);
  next_ ^= 1;
  return ranges.size() - count;
}

}  // namespace whomap
