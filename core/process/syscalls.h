// SPDX-License-Identifier: Apache-2.0
// The system calls that map memory, by number. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and
// include/uapi/asm-generic/unistd.h of Linux 6.1; they never change.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace whomap {

struct MemorySyscall {
  std::string_view name;
  std::int64_t x86_64;
  std::optional<std::int64_t> aarch64;
  int arguments;
  bool by_default;  ///< watched without being asked for
};

inline constexpr std::array memory_syscalls{
    MemorySyscall{"mmap", 9, 222, 6, true},       MemorySyscall{"munmap", 11, 215, 2, true},
    MemorySyscall{"mremap", 25, 216, 5, true},    MemorySyscall{"brk", 12, 214, 1, true},
    MemorySyscall{"mprotect", 10, 226, 3, false}, MemorySyscall{"madvise", 28, 233, 3, false},
    MemorySyscall{"shmat", 30, 196, 3, false},    MemorySyscall{"shmdt", 67, 197, 1, false},
};

/// The entry of `memory_syscalls` with this x86-64 number, nullptr for any other call.
constexpr const MemorySyscall* memory_syscall(std::int64_t x86_64_number) {
  for (const MemorySyscall& call : memory_syscalls)
    if (call.x86_64 == x86_64_number) return &call;
  return nullptr;
}

constexpr const MemorySyscall* memory_syscall(std::string_view name) {
  for (const MemorySyscall& call : memory_syscalls)
    if (call.name == name) return &call;
  return nullptr;
}

/// A result in -4095..-1 is an errno (man 2 syscall, "Error reporting"; MAX_ERRNO in the kernel).
constexpr bool is_syscall_error(std::uint64_t result) {
  return result >= static_cast<std::uint64_t>(-4095);
}

}  // namespace whomap
