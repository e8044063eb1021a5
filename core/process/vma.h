// SPDX-License-Identifier: Apache-2.0
// /proc/PID/maps: the VMAs (virtual memory areas) of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace whomap {

/// Addresses from start up to, not including, end.
struct AddressRange {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end - start; }
  [[nodiscard]] bool contains(std::uint64_t address) const { return address >= start && address < end; }
  bool operator==(const AddressRange&) const = default;
};

/// One line of /proc/PID/maps (man 5 proc_pid_maps).
struct Vma {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  std::uint64_t offset = 0;  ///< into the file, bytes
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t inode = 0;
  /// As the kernel wrote it: empty for anonymous memory, "[heap]" and the like, or a path in which
  /// only a newline is escaped (as \012) and to which " (deleted)" may be added.
  std::string name;

  [[nodiscard]] std::uint64_t size() const { return end - start; }
  [[nodiscard]] AddressRange range() const { return {start, end}; }
  [[nodiscard]] bool file_backed() const { return inode != 0; }
  bool operator==(const Vma&) const = default;
};

struct VmaList {
  std::vector<Vma> vmas;              ///< in the order of the file: ascending addresses
  std::vector<std::string> unparsed;  ///< lines that are not of the documented shape, never dropped
};

/// One line of maps without its newline; nullopt when it is not of the documented shape.
std::optional<Vma> parse_maps_line(std::string_view line);

/// Parses the text of /proc/PID/maps; a last line without a newline counts as cut and is unparsed
/// unless it is whole.
VmaList parse_maps(std::string_view text);

Result<VmaList> read_maps(pid_t pid);

/// How many mappings a process may have (/proc/sys/vm/max_map_count); nullopt when the kernel does not say.
std::optional<std::uint64_t> max_map_count();

/// The VMA that contains `address`, nullptr when none does. `vmas` must be sorted by address.
const Vma* find_vma(const std::vector<Vma>& vmas, std::uint64_t address);

}  // namespace whomap
