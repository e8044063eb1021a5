// SPDX-License-Identifier: Apache-2.0
#include "core/match/quantity.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace whomap {

std::uint64_t whole_bytes(double bytes) {
  constexpr double limit = 18446744073709549568.0;  // the largest double below 2^64
  if (!(bytes > 0)) return 0;
  return bytes >= limit ? static_cast<std::uint64_t>(limit) : static_cast<std::uint64_t>(bytes + 0.5);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.5 and more would print as 1000.
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value >= 99.95 || value == static_cast<double>(static_cast<std::uint64_t>(value));
  return whole ? fmt::format("{:.0f} {}", value, units[unit]) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string signed_bytes_text(std::int64_t bytes) {
  if (bytes == 0) return "0 B";
  const std::uint64_t size =
      bytes < 0 ? -static_cast<std::uint64_t>(bytes) : static_cast<std::uint64_t>(bytes);
  return (bytes < 0 ? "-" : "+") + bytes_text(size);
}

std::string count_text(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string count_text(std::uint64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count_text(count), thing, count == 1 ? "" : "s");
}

std::string share_text(double share) {
  const double percent = share * 100;
  if (share <= 0) return "0 %";
  if (share >= 1) return "100 %";
  if (percent < 0.1) return "under 0.1 %";
  if (percent > 99.9) return "over 99.9 %";
  return fmt::format("{:.1f} %", percent);
}

std::string seconds_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace whomap
