// SPDX-License-Identifier: Apache-2.0
#include "core/elf/image.h"

#include <gelf.h>

#include <fmt/format.h>

namespace whomap {
namespace {

std::string hex(const std::byte* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  return text;
}

/// NT_GNU_BUILD_ID in the note segment at `header`, empty when it holds none.
std::string build_id_in(Elf* elf, const GElf_Phdr& header) {
  Elf_Data* const data =
      elf_getdata_rawchunk(elf, static_cast<std::int64_t>(header.p_offset), header.p_filesz,
                           header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
  if (data == nullptr) return {};
  const auto* const bytes = static_cast<const std::byte*>(data->d_buf);
  GElf_Nhdr note;
  std::size_t name = 0;
  std::size_t description = 0;
  for (std::size_t at = 0; (at = gelf_getnote(data, at, &note, &name, &description)) > 0;) {
    const bool gnu = note.n_namesz == 4 && std::string_view(reinterpret_cast<const char*>(bytes + name), 4) ==
                                               std::string_view("GNU\0", 4);
    if (gnu && note.n_type == NT_GNU_BUILD_ID) return hex(bytes + description, note.n_descsz);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Image>> Image::from_file(UniqueFd fd, std::string path) {
  elf_version(EV_CURRENT);
  const std::shared_ptr<Image> image(new Image);
  image->path_ = std::move(path);
  image->fd_ = std::move(fd);
  // ELF_C_READ and not the mmap variants: a file that is cut while we look would raise SIGBUS.
  image->elf_ = elf_begin(image->fd_.get(), ELF_C_READ, nullptr);
  if (auto loaded = image->load(); !loaded) return tl::make_unexpected(loaded.error());
  return image;
}

Result<std::shared_ptr<const Image>> Image::from_memory(std::vector<std::byte> bytes, std::string path) {
  elf_version(EV_CURRENT);
  const std::shared_ptr<Image> image(new Image);
  image->path_ = std::move(path);
  image->bytes_ = std::move(bytes);
  image->elf_ = elf_memory(reinterpret_cast<char*>(image->bytes_.data()), image->bytes_.size());
  if (auto loaded = image->load(); !loaded) return tl::make_unexpected(loaded.error());
  return image;
}

Image::~Image() {
  if (elf_ != nullptr) elf_end(elf_);
}

Result<void> Image::load() {
  if (elf_ == nullptr || elf_kind(elf_) != ELF_K_ELF)
    return fail(ErrorCode::input_kind, fmt::format("{} is not an ELF file", path_));
  GElf_Ehdr header;
  std::size_t count = 0;
  if (gelf_getehdr(elf_, &header) == nullptr || elf_getphdrnum(elf_, &count) != 0)
    return fail(ErrorCode::input_damaged, fmt::format("the ELF headers of {} are damaged", path_));
  machine_ = header.e_machine;
  is_64bit_ = header.e_ident[EI_CLASS] == ELFCLASS64;
  position_independent_ = header.e_type == ET_DYN;
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr program;
    if (gelf_getphdr(elf_, static_cast<int>(i), &program) == nullptr)
      return fail(ErrorCode::input_damaged, fmt::format("the program headers of {} are damaged", path_));
    if (program.p_type == PT_LOAD)
      segments_.push_back({program.p_offset, program.p_vaddr, program.p_filesz, program.p_memsz,
                           (program.p_flags & PF_X) != 0});
    if (program.p_type == PT_NOTE && build_id_.empty()) build_id_ = build_id_in(elf_, program);
  }
  return {};
}

std::optional<std::uint64_t> Image::vaddr_of_offset(std::uint64_t file_offset) const {
  for (const Segment& segment : segments_)
    if (file_offset >= segment.offset && file_offset - segment.offset < segment.file_size)
      return segment.vaddr + (file_offset - segment.offset);
  return std::nullopt;
}

std::optional<std::uint64_t> Image::offset_of_vaddr(std::uint64_t vaddr) const {
  for (const Segment& segment : segments_)
    if (vaddr >= segment.vaddr && vaddr - segment.vaddr < segment.file_size)
      return segment.offset + (vaddr - segment.vaddr);
  return std::nullopt;
}

}  // namespace whomap
