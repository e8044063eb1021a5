// SPDX-License-Identifier: Apache-2.0
// How much of a stack is copied at each hit: what the stacks seen so far need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/capture/channel.h"

namespace whomap {

class CopySize {
 public:
  static constexpr std::size_t at_start = std::size_t{32} * 1024;
  static constexpr std::size_t smallest = std::size_t{8} * 1024;

  /// A stack of which `needed` bytes were looked at; `cut`: its copy was too short. Returns the new size when
  /// it changes: the largest at once after a cut stack, else twice what the deepest stack needed, looked at
  /// once in 1,024 stacks. A size that was too small once is never taken again.
  std::optional<std::size_t> seen(std::uint64_t needed, bool cut) {
    deepest_ = std::max(deepest_, cut ? needed + 1 : needed);
    ++stacks_;
    if (cut) {
      too_small_ = std::max(too_small_, std::min(size_, max_stack_copy - 1));
      return change_to(max_stack_copy);
    }
    constexpr std::uint64_t look_every = 1024;
    if (stacks_ % look_every != 0) return std::nullopt;
    constexpr std::size_t unit = 4096;
    std::size_t wanted =
        std::clamp<std::size_t>((2 * deepest_ + unit - 1) / unit * unit, smallest, max_stack_copy);
    if (wanted <= too_small_) wanted = max_stack_copy;
    return change_to(wanted);
  }

 private:
  std::optional<std::size_t> change_to(std::size_t size) {
    if (size == size_) return std::nullopt;
    return size_ = size;
  }

  std::size_t size_ = at_start;
  std::size_t too_small_ = 0;
  std::uint64_t deepest_ = 0;
  std::uint64_t stacks_ = 0;
};

}  // namespace whomap
