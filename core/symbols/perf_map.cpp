// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/perf_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/lines.h"
#include "core/base/unique_fd.h"
#include "core/process/status.h"

namespace whomap {
namespace {

/// Takes a hexadecimal number, which the JVM writes with "0x", and the space behind it off `line`.
bool take_hex(std::string_view& line, std::uint64_t& number) {
  if (line.starts_with("0x")) line.remove_prefix(2);
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), number, 16);
  if (problem != std::errc{} || end == line.data() + line.size() || *end != ' ') return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()) + 1);
  return true;
}

/// Seconds since 1970 at which the process was started, from field btime of /proc/stat (man 5 proc_stat).
std::optional<std::int64_t> start_of(const TargetIdentity& target) {
  const auto text = read_file("/proc/stat");
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = next_line(rest);
    constexpr std::string_view name = "btime ";
    std::int64_t boot = 0;
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (std::from_chars(line.data(), line.data() + line.size(), boot).ec != std::errc{}) return std::nullopt;
    return boot + static_cast<std::int64_t>(target.start_time) / ::sysconf(_SC_CLK_TCK);
  }
  return std::nullopt;
}

/// In its own pid namespace: the last of NSpid (Linux 4.1).
std::string own_number(const ProcessStatus& status, pid_t pid) {
  const auto found = status.fields.find("NSpid");
  if (found == status.fields.end()) return fmt::format("{}", pid);
  return found->second.substr(found->second.find_last_of(" \t") + 1);
}

}  // namespace

PerfMap PerfMap::parse(std::string_view text) {
  PerfMap map;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::uint64_t start = 0, size = 0;
    if (take_hex(line, start) && take_hex(line, size) && size != 0 && start + size > start && !line.empty())
      map.entries_.push_back({start, start + size, map.entries_.size(), std::string(line)});
  }
  std::sort(map.entries_.begin(), map.entries_.end(),
            [](const Entry& a, const Entry& b) { return a.start < b.start; });
  for (const Entry& each : map.entries_) map.largest_ = std::max(map.largest_, each.end - each.start);
  return map;
}

PerfMap PerfMap::of(const Target& target) {
  const auto status = read_status(target.pid());
  const auto started = start_of(target.identity());
  if (!status || !status->effective_uid || !started) return {};
  const std::string path =
      fmt::format("/proc/{}/root/tmp/perf-{}.map", target.pid(), own_number(*status, target.pid()));
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  // btime is rounded, and so is the start.
  constexpr std::int64_t rounding_seconds = 2;
  constexpr off_t largest = off_t{256} << 20;
  if (about.st_uid != *status->effective_uid || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
      about.st_mtime + rounding_seconds < *started || about.st_size > largest)
    return {};
  const auto text = read_file(fmt::format("/proc/self/fd/{}", file.get()));
  return text ? parse(*text) : PerfMap{};
}

std::string_view PerfMap::find(std::uint64_t address) const {
  auto at = std::upper_bound(entries_.begin(), entries_.end(), address,
                             [](std::uint64_t value, const Entry& each) { return value < each.start; });
  const Entry* newest = nullptr;
  while (at != entries_.begin()) {
    --at;
    if (address - at->start >= largest_) break;
    if (address < at->end && (newest == nullptr || at->line > newest->line)) newest = &*at;
  }
  return newest == nullptr ? std::string_view{} : std::string_view(newest->name);
}

}  // namespace whomap
