// SPDX-License-Identifier: Apache-2.0
// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace whomap {

/// Rounded, and kept within what the type holds: files may say anything.
std::uint64_t whole_bytes(double bytes);

/// "0 B", "640 KiB", "6.2 MiB": binary units, three digits at most before the next unit.
std::string bytes_text(std::uint64_t bytes);
/// The same with its sign: "+6.2 MiB", "-12 KiB", "0 B".
std::string signed_bytes_text(std::int64_t bytes);
/// "1,234,567".
std::string count_text(std::uint64_t count);
/// "1 call", "2,000 calls".
std::string count_text(std::uint64_t count, const std::string& thing);
/// 0.984 -> "98.4 %"; what is not everything is never "100 %", what is not nothing never "0 %".
std::string share_text(double share);
/// "0.8 s", "10.0 s", "12 min", "3.5 h".
std::string seconds_text(double seconds);

}  // namespace whomap
