// SPDX-License-Identifier: Apache-2.0
#include "core/elf/relocations.h"

#include <gelf.h>

namespace whomap {
namespace {

bool fills_a_pointer(std::uint16_t machine, std::uint64_t type) {
  if (machine == EM_X86_64)
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64;
  if (machine == EM_AARCH64)
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64;
  return false;
}

}  // namespace

std::vector<ImportSlot> read_import_slots(const Image& image) {
  std::vector<ImportSlot> slots;
  if (!image.is_64bit()) return slots;
  Elf* const elf = image.elf();
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    // Only relocations that are loaded: the others are for the linker.
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA ||
        (header.sh_flags & SHF_ALLOC) == 0)
      continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    Elf_Scn* const symbol_section = elf_getscn(elf, header.sh_link);
    GElf_Shdr symbol_header;
    if (data == nullptr || symbol_section == nullptr ||
        gelf_getshdr(symbol_section, &symbol_header) == nullptr)
      continue;
    Elf_Data* const symbols = elf_getdata(symbol_section, nullptr);
    if (symbols == nullptr || header.sh_entsize == 0) continue;
    for (std::size_t i = 0; i < header.sh_size / header.sh_entsize; ++i) {
      GElf_Rela relocation;
      if (gelf_getrela(data, static_cast<int>(i), &relocation) == nullptr) break;
      if (!fills_a_pointer(image.machine(), GELF_R_TYPE(relocation.r_info))) continue;
      GElf_Sym symbol;
      if (gelf_getsym(symbols, static_cast<int>(GELF_R_SYM(relocation.r_info)), &symbol) == nullptr) continue;
      const char* const name = elf_strptr(elf, symbol_header.sh_link, symbol.st_name);
      if (name == nullptr || *name == '\0') continue;
      slots.push_back({relocation.r_offset, name, symbol.st_shndx != SHN_UNDEF});
    }
  }
  return slots;
}

}  // namespace whomap
