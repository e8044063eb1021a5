// SPDX-License-Identifier: Apache-2.0
// Where the chain of frame pointers leaves a copy of the stack for another stack: Go's runtime calls its
// allocator on the thread's own stack, and the goroutine's, which has the callers, lies elsewhere
// (go/src/runtime/asm_amd64.s, systemstack).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace whomap {

/// Of the other stack so much below the frame that the chain leads to: what lies there tells who called last.
inline constexpr std::uint64_t other_stack_below = 1024;
inline constexpr std::size_t other_stack_bytes = std::size_t{16} * 1024;

/// The frame pointer of the first frame on the other stack; `frame_pointer` is that of the innermost frame,
/// `stack` the copy of what lies at `address`. Nothing when the chain ends in the copy or is none. Where the
/// copy is too short for its stack, it is a frame of the same stack.
std::optional<std::uint64_t> frame_on_other_stack(std::uint64_t frame_pointer, std::uint64_t address,
                                                  std::span<const std::byte> stack);

}  // namespace whomap
