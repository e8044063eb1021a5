// SPDX-License-Identifier: Apache-2.0
// Questions about the code around an address, answered from the image's bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "core/elf/image.h"

namespace whomap {

/// Is the x86-64 instruction that ends at `address` (link-time) a call? Decoding backwards is
/// ambiguous, so this is a necessary condition for a return address, not a proof.
bool follows_call(const Image& image, std::uint64_t address);

/// Where the direct `call rel32` that ends at `address` goes; nullopt when there is none.
std::optional<std::uint64_t> direct_call_target(const Image& image, std::uint64_t address);

/// Where the direct jump that `address` begins with goes (past an endbr64); nullopt when it is none.
std::optional<std::uint64_t> direct_jump_target(const Image& image, std::uint64_t address);

/// Does the function of `size` bytes at `start` set up a frame pointer (push %rbp; mov %rsp,%rbp), at its
/// start or soon after it?
bool sets_frame_pointer(const Image& image, std::uint64_t start, std::uint64_t size);

/// Is this the code that the kernel returns to after a signal handler: mov $15,%rax; syscall?
/// libc's differ in whether they describe it by CFI, not in the bytes (glibc, musl, Go, bionic).
bool is_signal_return_code(const Image& image, std::uint64_t address);

}  // namespace whomap
