// SPDX-License-Identifier: Apache-2.0
// Memory in the target that is ours: stubs of this trace, or inert ones of an earlier one. It is neither code
// to be watched nor growth.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

}  // namespace whomap
