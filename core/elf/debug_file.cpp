// SPDX-License-Identifier: Apache-2.0
#include "core/elf/debug_file.h"

#include <fcntl.h>

#include <string>
#include <string_view>
#include <utility>

#include <elfutils/libdwelf.h>
#include <fmt/format.h>

namespace whomap {
namespace {

constexpr std::string_view debug_root = "/usr/lib/debug";

std::string hex(const void* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format("{:02x}", static_cast<const unsigned char*>(bytes)[i]);
  return text;
}

/// Of the section as well as of the segment: objcopy --only-keep-debug leaves program headers whose
/// contents are not in the file.
std::string build_id_of(Elf* elf) {
  const void* bytes = nullptr;
  const ssize_t length = dwelf_elf_gnu_build_id(elf, &bytes);
  return length > 0 ? hex(bytes, static_cast<std::size_t>(length)) : std::string();
}

std::shared_ptr<const Image> open_with_build_id(const std::string& path, std::string_view build_id) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return nullptr;
  auto image = Image::from_file(std::move(fd), path);
  if (!image || build_id_of((*image)->elf()) != build_id) return nullptr;
  return *image;
}

std::shared_ptr<const Image> open_by_build_id(std::string_view build_id) {
  constexpr std::size_t shortest = 4;  // two digits name the folder, something must be left for the file
  if (build_id.size() < shortest) return nullptr;
  return open_with_build_id(
      fmt::format("{}/.build-id/{}/{}.debug", debug_root, build_id.substr(0, 2), build_id.substr(2)),
      build_id);
}

/// Debian installs what dwz shares as /usr/lib/debug/.dwz/NAME and writes that name, absolute or
/// relative, into the files that use it. Only the part after ".dwz/" is taken from the file.
std::shared_ptr<const Image> open_by_dwz_name(std::string_view name, std::string_view build_id) {
  constexpr std::string_view folder = ".dwz/";
  const std::size_t at = name.rfind(folder);
  if (at == std::string_view::npos) return nullptr;
  const std::string_view rest = name.substr(at + folder.size());
  if (rest.empty() || rest.find("..") != std::string_view::npos) return nullptr;
  return open_with_build_id(fmt::format("{}/.dwz/{}", debug_root, rest), build_id);
}

bool has(Dwarf* dwarf, DebugInfo::Wanted wanted) {
  if (wanted == DebugInfo::Wanted::debug_frame) return dwarf_getcfi(dwarf) != nullptr;
  Dwarf_Off next = 0;
  std::size_t header_size = 0;
  return dwarf_nextcu(dwarf, 0, &next, &header_size, nullptr, nullptr, nullptr) == 0;
}

}  // namespace

std::shared_ptr<const Image> separate_debug_file(const Image& image) {
  return open_by_build_id(image.build_id());
}

bool DebugInfo::open_supplementary() {
  const char* name = nullptr;
  const void* id = nullptr;
  const ssize_t length = dwelf_dwarf_gnu_debugaltlink(dwarf_.get(), &name, &id);
  if (length == 0) return true;
  if (length < 0) return false;
  const std::string build_id = hex(id, static_cast<std::size_t>(length));
  supplementary_source_ = open_by_build_id(build_id);
  if (!supplementary_source_) supplementary_source_ = open_by_dwz_name(name, build_id);
  if (!supplementary_source_) return false;
  supplementary_.reset(dwarf_begin_elf(supplementary_source_->elf(), DWARF_C_READ, nullptr));
  if (!supplementary_) return false;
  // Given one, libdw does not look for it by itself, which it would do beside the target's file.
  dwarf_setalt(dwarf_.get(), supplementary_.get());
  return true;
}

std::optional<DebugInfo> DebugInfo::open_in(std::shared_ptr<const Image> source, Wanted wanted) {
  DebugInfo info;
  info.dwarf_.reset(dwarf_begin_elf(source->elf(), DWARF_C_READ, nullptr));
  if (!info.dwarf_ || !has(info.dwarf_.get(), wanted)) return std::nullopt;
  info.source_ = std::move(source);
  if (wanted == Wanted::debug_info && !info.open_supplementary()) return std::nullopt;
  return info;
}

std::optional<DebugInfo> DebugInfo::open(const std::shared_ptr<const Image>& image, Wanted wanted) {
  if (auto own = open_in(image, wanted)) return own;
  if (auto separate = separate_debug_file(*image)) return open_in(std::move(separate), wanted);
  return std::nullopt;
}

}  // namespace whomap
