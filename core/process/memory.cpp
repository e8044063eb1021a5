// SPDX-License-Identifier: Apache-2.0
#include "core/process/memory.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/unique_fd.h"

namespace whomap {

std::size_t read_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into) {
  // A transfer may end early only between the elements of the remote vector (man 2
  // process_vm_readv), so each page is an element of its own.
  constexpr std::uint64_t page = 4096;
  constexpr std::size_t pages_per_call = 64;
  std::size_t done = 0;
  while (done < into.size()) {
    std::array<iovec, pages_per_call> remote{};
    std::size_t count = 0;
    std::size_t length = 0;
    while (count < pages_per_call && done + length < into.size()) {
      const std::uint64_t at = address + done + length;
      const std::size_t piece = std::min<std::size_t>(page - at % page, into.size() - done - length);
      remote[count++] = {reinterpret_cast<void*>(at), piece};
      length += piece;
    }
    const iovec local{into.data() + done, length};
    const ssize_t got = ::process_vm_readv(pid, &local, 1, remote.data(), count, 0);
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < length) break;
  }
  return done;
}

std::vector<std::uint8_t> read_bytes(pid_t pid, std::uint64_t address, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  bytes.resize(read_memory(pid, address, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

bool write_memory(pid_t pid, std::uint64_t address, std::span<const std::uint8_t> bytes) {
  return MemoryFile(pid).write(address, bytes);
}

MemoryFile::MemoryFile(pid_t pid)
    : file_(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDWR | O_CLOEXEC)) {}

std::size_t MemoryFile::read(std::uint64_t address, std::span<std::uint8_t> into) const {
  const ssize_t got = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(address));
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

bool MemoryFile::write(std::uint64_t address, std::span<const std::uint8_t> bytes) const {
  return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(address)) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace whomap
