// SPDX-License-Identifier: Apache-2.0
#include "core/verify/held_memory.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <memory>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/lines.h"
#include "core/process/proc_error.h"

namespace whomap {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\n"), line.size()));
    if (line.empty()) return words;
    words.push_back(line.substr(0, line.find_first_of(" \t\n")));
    line.remove_prefix(words.back().size());
  }
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string link_text(const std::string& path) {
  std::array<char, PATH_MAX> buffer;
  const ssize_t length = ::readlink(path.c_str(), buffer.data(), buffer.size());
  return length < 0 ? std::string{} : std::string(buffer.data(), static_cast<std::size_t>(length));
}

/// The mount that a descriptor's file is on ("mnt_id:" of fdinfo, since Linux 3.15).
std::string mount_of(pid_t pid, const std::string& descriptor) {
  const auto info = read_proc_file(pid, "fdinfo/" + descriptor);
  if (!info) return {};
  std::string_view text = *info;
  while (!text.empty()) {
    const auto words = words_of(next_line(text));
    if (words.size() == 2 && words[0] == "mnt_id:") return std::string(words[1]);
  }
  return {};
}

/// SysV segments are listed for the reader's own IPC namespace only.
bool same_ipc_namespace(pid_t pid) {
  struct stat own {
  }, other{};
  return ::stat("/proc/self/ns/ipc", &own) == 0 &&
         ::stat(fmt::format("/proc/{}/ns/ipc", pid).c_str(), &other) == 0 && own.st_ino == other.st_ino;
}

}  // namespace

std::set<std::string> tmpfs_mounts(std::string_view mountinfo) {
  std::set<std::string> mounts;
  while (!mountinfo.empty()) {
    // 36 35 98:0 /root /point options [optional ...] - type source options
    const auto words = words_of(next_line(mountinfo));
    const auto separator = std::find(words.begin(), words.end(), "-");
    if (separator != words.end() && separator + 1 != words.end() && separator[1] == "tmpfs")
      mounts.emplace(words.front());
  }
  return mounts;
}

std::optional<std::uint64_t> created_segment_bytes(std::string_view sysvipc_shm, pid_t creator) {
  const auto header = words_of(next_line(sysvipc_shm));
  const auto column = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const std::size_t cpid = column("cpid"), rss = column("rss"), swap = column("swap");
  if (std::max({cpid, rss, swap}) >= header.size()) return std::nullopt;
  std::uint64_t bytes = 0;
  while (!sysvipc_shm.empty()) {
    const auto words = words_of(next_line(sysvipc_shm));
    if (words.size() < header.size() || number_in<pid_t>(words[cpid]) != creator) continue;
    bytes +=
        number_in<std::uint64_t>(words[rss]).value_or(0) + number_in<std::uint64_t>(words[swap]).value_or(0);
  }
  return bytes;
}

void HeldMemory::add(pid_t pid) {
  add_descriptors(pid);
  add_segments(pid);
}

void HeldMemory::add_descriptors(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}/fd/", pid);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  if (!directory) {
    if (errno == ENOENT || errno == ESRCH) return;  // it has ended: it holds nothing
    known_ = false;
    notes_.push_back(
        fmt::format("memory in memfds and open tmpfs files is not known: {} may not be read", folder));
    return;
  }
  const auto mounts = tmpfs_mounts(read_proc_file(pid, "mountinfo").value_or(""));
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string descriptor = entry->d_name;
    const std::string link = folder + descriptor;
    const std::string points_at = link_text(link);
    // stat of a file on a network mount may block for ever: only what is in memory is asked.
    const bool memfd = points_at.starts_with("/memfd:");
    if (!memfd && (!points_at.starts_with('/') || mounts.count(mount_of(pid, descriptor)) == 0)) continue;
    struct stat facts {};
    if (::stat(link.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;  // closed meanwhile
    if (!files_.emplace(facts.st_dev, facts.st_ino).second) continue;
    constexpr std::uint64_t block = 512;  // man 3 stat
    bytes_ += static_cast<std::uint64_t>(facts.st_blocks) * block;
  }
}

void HeldMemory::add_segments(pid_t pid) {
  const auto segments = read_file("/proc/sysvipc/shm");
  if (!segments) return;  // a kernel without SysV IPC
  if (!same_ipc_namespace(pid)) {
    notes_.push_back(
        fmt::format("SysV segments of process {} are not seen: it is in another IPC namespace", pid));
    return;
  }
  bytes_ += created_segment_bytes(*segments, pid).value_or(0);
}

}  // namespace whomap
