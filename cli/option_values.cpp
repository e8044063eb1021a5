// SPDX-License-Identifier: Apache-2.0
#include "cli/option_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "core/process/syscalls.h"

namespace whomap::cli {
namespace {

/// The whole text as a number; nullopt for anything before, after or instead of it.
template <class Number>
std::optional<Number> whole(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc{} || rest != end) return std::nullopt;
  return value;
}

}  // namespace

Result<std::uint64_t> count_value(const std::string& option, const std::string& text, std::uint64_t least,
                                  std::uint64_t most) {
  const auto value = whole<std::uint64_t>(text);
  if (!value || *value < least || *value > most)
    return fail(ErrorCode::usage,
                fmt::format("{} is '{}', and takes a whole number from {} to {}", option, text, least, most));
  return *value;
}

Result<double> seconds_value(const std::string& option, const std::string& text, double least, double most) {
  const auto value = whole<double>(text);
  if (!value || !(*value >= least) || *value > most)  // not a number compares as neither
    return fail(ErrorCode::usage,
                fmt::format("{} is '{}', and takes seconds from {:g} to {:.0f}, without a unit", option, text,
                            least, most));
  return *value;
}

Result<double> percent_value(const std::string& option, const std::string& text) {
  const auto value = whole<double>(text);
  if (!value || !(*value > 0) || *value > 100)
    return fail(ErrorCode::usage,
                fmt::format("{} is '{}', and takes a percentage above 0, up to 100", option, text));
  return *value / 100;
}

Result<std::uint64_t> bytes_value(const std::string& option, const std::string& text) {
  const auto value = parse_bytes(text);
  if (!value || *value == 0)
    return fail(ErrorCode::usage,
                fmt::format("{} is '{}', and takes bytes above 0 as 4096, 64K, 100M or 2G", option, text));
  return *value;
}

Result<std::uint64_t> parse_bytes(const std::string& text) {
  const auto wrong = [&] {
    return fail(ErrorCode::usage, fmt::format("'{}' is not a size", text),
                "write bytes as 4096, 64K, 100M or 2G");
  };
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{}) return wrong();
  unsigned shift = 0;
  if (rest != end) {
    constexpr std::string_view units = "KMGT";
    const auto unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
    if (unit == std::string_view::npos || rest + 1 != end) return wrong();
    shift = 10 * (static_cast<unsigned>(unit) + 1);
  }
  if (number > (~std::uint64_t{0} >> shift)) return wrong();
  return number << shift;
}

Result<pid_t> parse_pid(const std::string& text) {
  constexpr int pid_max_limit = 4 * 1024 * 1024;  // include/linux/threads.h, 64-bit
  const auto pid = whole<int>(text);
  if (!pid || *pid < 1 || *pid > pid_max_limit)
    return fail(ErrorCode::usage, fmt::format("'{}' is not a process id", text),
                "give the number that ps or pgrep prints");
  return *pid;
}

Result<double> parse_seconds(const std::string& text) {
  const auto seconds = whole<double>(text);
  if (!seconds || !(*seconds > 0) || *seconds > seconds_in_a_week)
    return fail(ErrorCode::usage, fmt::format("'{}' is not a duration", text),
                "give seconds above 0, up to a week, without a unit");
  return *seconds;
}

Result<std::vector<std::int64_t>> parse_syscalls(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    const MemorySyscall* call = memory_syscall(std::string_view(name));
    if (call == nullptr) {
      std::string known;
      for (const MemorySyscall& each : memory_syscalls)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
      return fail(ErrorCode::usage, fmt::format("'{}' is not a system call that maps memory", name),
                  fmt::format("known are {}", known));
    }
    if (std::find(numbers.begin(), numbers.end(), call->x86_64) == numbers.end())
      numbers.push_back(call->x86_64);
  }
  if (numbers.empty())
    return fail(ErrorCode::usage, "--syscalls names no call", "for example --syscalls mmap,munmap");
  return numbers;
}

}  // namespace whomap::cli
