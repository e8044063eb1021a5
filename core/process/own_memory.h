// SPDX-License-Identifier: Apache-2.0
// Memory in the target that is ours: stubs of this trace, or inert ones of an earlier one. It is neither code
// to be watched nor growth.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/process/vma.h"

namespace whomap {

/// What lies at the start of each area of ours that holds code: a mark and a nonce of 32 hex digits.
constexpr std::size_t own_header_size = 64;

std::array<std::uint8_t, own_header_size> own_header(const std::string& nonce);
/// The nonce in a header, empty when it is none.
std::string nonce_of_header(std::span<const std::uint8_t> bytes);

/// Does `vma` of process `pid` begin with our header? Only private executable memory without a file is looked
/// at.
bool is_own_code(pid_t pid, const Vma& vma);

/// The name of the memory file that the probe engine shares with the target.
inline constexpr std::string_view ring_file_name = "whomap-ring";
/// The name under which maps shows the shared memory of the probe engine.
inline constexpr std::string_view ring_mapping_name = "/memfd:whomap-ring (deleted)";

/// What is in memory of these addresses, bytes: pages of the process's own (RssAnon), and shared ones
/// (RssShmem). 0 where pagemap cannot be read.
struct ResidentBytes {
  std::uint64_t anonymous = 0, shared = 0;
};
ResidentBytes resident_bytes(pid_t pid, std::span<const AddressRange> ranges);

/// How much of it is resident in the process, bytes; the kernel counts that as the process's RssShmem. 0 when
/// no trace is running.
std::uint64_t resident_ring_bytes(pid_t pid);

}  // namespace whomap
