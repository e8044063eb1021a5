// SPDX-License-Identifier: Apache-2.0
// Reading the memory of another process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

/// Copies from `address` into `into` up to the first page that cannot be read; returns the bytes
/// copied, which may be 0. Needs PTRACE_MODE_ATTACH access (man 2 process_vm_readv); the target is
/// not stopped. Reading a file page that is not resident makes it resident in the target.
std::size_t read_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into);

/// The same as a vector, shorter than `size` where a page cannot be read.
std::vector<std::uint8_t> read_bytes(pid_t pid, std::uint64_t address, std::size_t size);

/// Writes through /proc/PID/mem, also over code and read-only pages; private pages are copied first, the file
/// stays as it is. False when not all could be written.
bool write_memory(pid_t pid, std::uint64_t address, std::span<const std::uint8_t> bytes);

/// /proc/PID/mem, held open. It means the memory that the process had when it was opened: after an exec it
/// reads and writes nothing of the new program.
class MemoryFile {
 public:
  explicit MemoryFile(pid_t pid);
  [[nodiscard]] bool valid() const { return file_.valid(); }
  /// Bytes copied up to the first that cannot be read.
  std::size_t read(std::uint64_t address, std::span<std::uint8_t> into) const;
  /// As write_memory().
  [[nodiscard]] bool write(std::uint64_t address, std::span<const std::uint8_t> bytes) const;

 private:
  UniqueFd file_;
};

}  // namespace whomap
