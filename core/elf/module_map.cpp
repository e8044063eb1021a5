// SPDX-License-Identifier: Apache-2.0
#include "core/elf/module_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "core/process/memory.h"

namespace whomap {
namespace {

std::uint64_t device_of(const Vma& vma) {
  return std::uint64_t{vma.device_major} << 32 | vma.device_minor;
}

/// Maps escapes only the newline, so a name that holds "\012" may mean either.
std::string unescaped(std::string name) {
  for (std::size_t at = 0; (at = name.find("\\012", at)) != std::string::npos; ++at)
    name.replace(at, 4, "\n");
  return name;
}

/// The file behind a mapping, proven by its inode. map_files names exactly what is mapped, deleted,
/// replaced or in another mount namespace, but needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
Result<UniqueFd> open_mapped_file(pid_t pid, const Vma& vma) {
  const std::string by_range = fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, vma.start, vma.end);
  if (UniqueFd fd(::open(by_range.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); fd.valid()) return fd;
  int why = errno;
  for (const std::string& name : {vma.name, unescaped(vma.name)}) {
    UniqueFd fd(::open(fmt::format("/proc/{}/root{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
      why = errno;
      continue;
    }
    // The device is not compared: maps and stat disagree about it on btrfs and overlayfs.
    struct stat facts {};
    if (::fstat(fd.get(), &facts) == 0 && facts.st_ino == vma.inode && S_ISREG(facts.st_mode)) return fd;
    why = ESTALE;
  }
  return fail(ErrorCode::input_unreadable,
              fmt::format("cannot open {} as process {} has it mapped", vma.name, pid), {}, why);
}

Result<std::shared_ptr<const Image>> image_of(pid_t pid, const Vma& vma) {
  if (vma.name == "[vdso]") {
    std::vector<std::byte> bytes(vma.size());
    bytes.resize(read_memory(pid, vma.start, bytes));
    return Image::from_memory(std::move(bytes), vma.name);
  }
  auto fd = open_mapped_file(pid, vma);
  if (!fd) return tl::make_unexpected(fd.error());
  return Image::from_file(std::move(*fd), vma.name);
}

/// The load bias that puts the file's executable segment where this mapping is. Mappings begin on page
/// borders, segments need not: the first page may hold the end of the segment before.
std::optional<std::uint64_t> bias_of(const Image& image, const Vma& vma) {
  constexpr std::uint64_t page_mask = ~std::uint64_t{4095};
  if (vma.name == "[vdso]") {
    if (image.segments().empty()) return std::nullopt;
    return vma.start - image.segments().front().vaddr;
  }
  for (const bool executable : {true, false})
    for (const Segment& segment : image.segments()) {
      if (segment.executable != executable) continue;
      if (vma.offset < (segment.offset & page_mask) || vma.offset >= segment.offset + segment.file_size)
        continue;
      return vma.start - vma.offset - (segment.vaddr - segment.offset);
    }
  return std::nullopt;
}

}  // namespace

void ModuleMap::update(const Target& target, const std::vector<Vma>& vmas) {
  entries_.clear();
  unreadable_.clear();
  for (Module& module : modules_) module.executable.clear();
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> refused;

  for (const Vma& vma : vmas) {
    if (!vma.executable || (!vma.file_backed() && vma.name != "[vdso]")) continue;
    const std::uint64_t device = device_of(vma);
    const auto same_file = [&](const Module& module) {
      return module.device == device && module.inode == vma.inode &&
             (vma.inode != 0 || module.path == vma.name);
    };
    const auto refuse = [&](const std::string& reason) {
      refused.emplace(std::pair(device, vma.inode), reason);
      const auto known =
          std::find_if(unreadable_.begin(), unreadable_.end(),
                       [&](const UnreadableModule& module) { return module.path == vma.name; });
      if (known != unreadable_.end())
        known->ranges.push_back(vma.range());
      else
        unreadable_.push_back({vma.name, {vma.range()}, reason});
    };
    if (const auto known = refused.find({device, vma.inode}); known != refused.end()) {
      refuse(known->second);
      continue;
    }
    std::shared_ptr<const Image> image;
    if (const auto known = std::find_if(modules_.begin(), modules_.end(), same_file);
        known != modules_.end()) {
      image = known->image;
    } else if (auto opened = image_of(target.pid(), vma)) {
      image = *opened;
    } else {
      refuse(to_line(opened.error()));
      continue;
    }
    const auto bias = bias_of(*image, vma);
    if (!bias) {
      refuse(fmt::format("no segment of {} covers offset {:#x}, which is mapped executable", vma.name,
                         vma.offset));
      continue;
    }
    auto module = std::find_if(modules_.begin(), modules_.end(),
                               [&](const Module& each) { return each.image == image && each.bias == *bias; });
    if (module == modules_.end())
      module = modules_.insert(modules_.end(), Module{image, vma.name, *bias, vma.inode, device, {}});
    module->executable.push_back(vma);
    entries_.push_back({vma.range(), static_cast<int>(module - modules_.begin())});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.range.start < b.range.start; });
}

int ModuleMap::find(std::uint64_t address) const {
  const auto after =
      std::upper_bound(entries_.begin(), entries_.end(), address,
                       [](std::uint64_t wanted, const Entry& entry) { return wanted < entry.range.end; });
  if (after == entries_.end() || address < after->range.start) return -1;
  return after->module;
}

}  // namespace whomap
