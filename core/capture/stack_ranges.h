// SPDX-License-Identifier: Apache-2.0
// Tells the stubs how far a stack reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/capture/ring.h"
#include "core/process/vma.h"

namespace whomap {

/// What a stub may copy of, sorted. The main thread's stack ends where its VMA does, and that end never
/// moves. Any other private writable VMA is offered for threads whose fs_base lies in it above their rsp:
/// glibc and musl put the thread's descriptor at the top of its stack, and what lies between is that thread's
/// own. So the table needs no list of threads, and one that is out of date bounds nothing wrongly.
/// `main_thread_base`: the main thread's fs_base, 0 if unknown: its descriptor does not lie on its stack, so
/// its VMA is left out.
std::vector<StackRange> stack_ranges(const std::vector<Vma>& maps, std::uint64_t main_thread_base);

/// Publishes ranges to the stubs. One writer at a time.
class StackTableWriter {
 public:
  /// `ring`: as this process has it mapped, at least shape.bytes; must outlive the writer.
  StackTableWriter(std::span<std::byte> ring, const RingShape& shape) : ring_(ring), shape_(shape) {}

  /// `ranges`: sorted by start, disjoint. Stubs search the new ones as soon as this returns. Returns how many
  /// did not fit and were left out: stacks there are copied to the end of rsp's page only.
  std::size_t publish(std::span<const StackRange> ranges);

 private:
  std::span<std::byte> ring_;
  RingShape shape_;
  std::uint64_t next_ = 1;  ///< which of the two tables
};

}  // namespace whomap
