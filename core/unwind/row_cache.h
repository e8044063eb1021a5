// SPDX-License-Identifier: Apache-2.0
// Rows by module and offset: an open hash table, because a lookup happens for every frame of every
// captured stack. It grows with the distinct pcs seen, never with the stacks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/unwind/row.h"

namespace whomap {

/// How a frame's pc came to be; it decides where its row is looked up.
enum class PcKind : std::uint8_t {
  /// The innermost frame. Its registers are those at pc, so the row must be the one valid at pc,
  /// although pc follows a `syscall` and its symbol is looked up at pc - 1 as for a return address.
  innermost,
  /// The call may be the last instruction of its function or of its row: valid is the row at pc - 1.
  return_address,
  /// Where a signal arrived: nothing of the kind has happened yet at pc, all lookups are at pc.
  interrupted,
};

class RowCache {
 public:
  struct Key {
    std::uint64_t offset = 0;
    std::uint32_t module = 0;
    bool return_address = false;
    bool operator==(const Key&) const = default;
  };

  RowCache() : slots_(1024) {}

  [[nodiscard]] const Row* find(const Key& key) const {
    for (std::size_t at = hash(key) & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (!slot.used) return nullptr;
      if (slot.key == key) return &slot.row;
    }
  }

  /// Valid until the next insert.
  const Row* insert(const Key& key, const Row& row) {
    if (used_ * 2 >= slots_.size()) grow();
    ++used_;
    return place(key, row);
  }

 private:
  struct Slot {
    Key key;
    bool used = false;
    Row row;
  };

  [[nodiscard]] std::size_t mask() const { return slots_.size() - 1; }
  static std::size_t hash(const Key& key) {
    // Fibonacci hashing; offsets alone are dense and share their low bits between modules.
    std::uint64_t mixed = (key.offset ^ (std::uint64_t{key.module} << 48)) * 2 + (key.return_address ? 1 : 0);
    mixed *= 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
  }
  const Row* place(const Key& key, const Row& row) {
    std::size_t at = hash(key) & mask();
    while (slots_[at].used) at = (at + 1) & mask();
    slots_[at] = {key, true, row};
    return &slots_[at].row;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.used) place(slot.key, slot.row);
  }

  std::vector<Slot> slots_;  ///< a power of two of them
  std::size_t used_ = 0;
};

}  // namespace whomap
