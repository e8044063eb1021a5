// SPDX-License-Identifier: Apache-2.0
#include "core/process/deleted_file.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <string_view>

#include <fmt/format.h>

namespace whomap {
namespace {

constexpr std::string_view ending = " (deleted)";

std::optional<struct stat> facts_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? std::optional(facts) : std::nullopt;
}

bool same_file(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/// maps shows a path from the reader's root: the process sees the same one there if it has that root.
bool has_our_root(pid_t pid) {
  const auto root = facts_of(fmt::format("/proc/{}/root/", pid));
  const auto ours = facts_of("/");
  return root && ours && same_file(*root, *ours);
}

}  // namespace

std::optional<Deleted> deleted_by_name(const Vma& vma) {
  if (!vma.file_backed()) return std::nullopt;
  return vma.name.ends_with(ending) ? Deleted::unknown : Deleted::no;
}

std::optional<Deleted> DeletedFiles::look(const Vma& vma) {
  const auto by_name = deleted_by_name(vma);
  if (by_name != Deleted::unknown) return by_name;
  const auto [at, fresh] = known_.try_emplace({vma.device_major, vma.device_minor, vma.inode, vma.name});
  if (fresh) at->second = ask(vma);
  return at->second;
}

Deleted DeletedFiles::ask(const Vma& vma) const {
  const auto mapped = facts_of(fmt::format("/proc/{}/map_files/{:x}-{:x}", pid_, vma.start, vma.end));
  if (mapped && mapped->st_nlink == 0) return Deleted::yes;
  // Only a newline is escaped in maps, as \012, so a name that holds these four may mean either.
  std::string unescaped = vma.name;
  for (std::size_t at = 0; (at = unescaped.find("\\012", at)) != std::string::npos; ++at)
    unescaped.replace(at, 4, "\n");
  bool all_missing = true;
  for (const std::string& name : {vma.name, unescaped}) {
    const auto named = facts_of(fmt::format("/proc/{}/root{}", pid_, name));
    if (!named) {
      all_missing = all_missing && errno == ENOENT;
      continue;
    }
    if (mapped ? same_file(*mapped, *named) : named->st_ino == vma.inode) return Deleted::no;
  }
  // Nothing has the name as it stands: it was added to, when this name of the file was deleted. Where another
  // file has it, the one may have been deleted or replaced.
  if (!has_our_root(pid_)) return Deleted::unknown;
  return all_missing || mapped ? Deleted::yes : Deleted::unknown;
}

}  // namespace whomap
