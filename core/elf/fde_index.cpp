// SPDX-License-Identifier: Apache-2.0
#include "core/elf/fde_index.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <gelf.h>

namespace whomap {
namespace {

/// A stretch of the file that is read as .eh_frame, or its header.
struct Section {
  Elf_Data* data = nullptr;
  std::uint64_t address = 0;
  explicit operator bool() const { return data != nullptr && data->d_buf != nullptr; }
};

/// Reads a pointer of `encoding` (DW_EH_PE_*, LSB 5.0 core, section 10.5) at `at`, and steps over it.
std::optional<std::uint64_t> read_pointer(const Section& section, const std::uint8_t*& at,
                                          const std::uint8_t* end, unsigned encoding) {
  const auto* const begin = static_cast<const std::uint8_t*>(section.data->d_buf);
  const std::uint64_t own_address = section.address + static_cast<std::uint64_t>(at - begin);
  const auto take = [&]<class T>(T number) -> std::optional<std::uint64_t> {
    if (end - at < static_cast<std::ptrdiff_t>(sizeof number)) return std::nullopt;
    std::memcpy(&number, at, sizeof number);
    at += sizeof number;
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(number));
  };
  std::optional<std::uint64_t> value;
  switch (encoding & 0x0FU) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
    case DW_EH_PE_sdata8: value = take(std::int64_t{}); break;
    case DW_EH_PE_udata4: value = take(std::uint32_t{}); break;
    case DW_EH_PE_sdata4: value = take(std::int32_t{}); break;
    case DW_EH_PE_udata2: value = take(std::uint16_t{}); break;
    case DW_EH_PE_sdata2: value = take(std::int16_t{}); break;
    default: break;  // LEB128 does not occur for code addresses
  }
  switch (encoding & 0x70U) {
    case DW_EH_PE_absptr: return value;
    case DW_EH_PE_pcrel: return value ? std::optional(*value + own_address) : std::nullopt;
    case DW_EH_PE_datarel: return value ? std::optional(*value + section.address) : std::nullopt;
    default: return std::nullopt;
  }
}

/// .eh_frame as .eh_frame_hdr points to it, for files without section headers. Its length is not
/// recorded anywhere; the entries end with a zero word, or with the segment.
Section by_program_header(const Image& image) {
  std::size_t count = 0;
  if (elf_getphdrnum(image.elf(), &count) != 0) return {};
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(image.elf(), static_cast<int>(i), &header) == nullptr ||
        header.p_type != PT_GNU_EH_FRAME)
      continue;
    const Section table{elf_getdata_rawchunk(image.elf(), static_cast<std::int64_t>(header.p_offset),
                                             header.p_filesz, ELF_T_BYTE),
                        header.p_vaddr};
    if (!table || table.data->d_size < 8) return {};
    const auto* at = static_cast<const std::uint8_t*>(table.data->d_buf);
    const auto* const end = at + table.data->d_size;
    const unsigned encoding = at[1];  // at[0] is the version
    at += 4;
    const auto address = read_pointer(table, at, end, encoding);
    if (!address) return {};
    for (const Segment& segment : image.segments()) {
      if (*address < segment.vaddr || *address - segment.vaddr >= segment.file_size) continue;
      const std::uint64_t into = *address - segment.vaddr;
      return {elf_getdata_rawchunk(image.elf(), static_cast<std::int64_t>(segment.offset + into),
                                   segment.file_size - into, ELF_T_BYTE),
              *address};
    }
  }
  return {};
}

Section find_eh_frame(const Image& image) {
  std::size_t names = 0;
  if (elf_getshdrstrndx(image.elf(), &names) == 0) {
    for (Elf_Scn* scn = nullptr; (scn = elf_nextscn(image.elf(), scn)) != nullptr;) {
      GElf_Shdr header;
      if (gelf_getshdr(scn, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
      const char* const name = elf_strptr(image.elf(), names, header.sh_name);
      if (name == nullptr || std::string_view(name) != ".eh_frame") continue;
      if (const Section found{elf_rawdata(scn, nullptr), header.sh_addr}) return found;
    }
  }
  return by_program_header(image);
}

/// The pointer encoding of the FDEs of a CIE: the R of its augmentation.
std::optional<unsigned> fde_encoding(const Dwarf_CIE& cie) {
  const std::string_view augmentation(cie.augmentation);
  if (augmentation.empty()) return DW_EH_PE_absptr;
  if (augmentation.front() != 'z') return std::nullopt;
  const std::uint8_t* at = cie.augmentation_data;
  const std::uint8_t* const end = at + cie.augmentation_data_size;
  for (const char letter : augmentation.substr(1)) {
    if (letter == 'S' || letter == 'B') continue;  // signal frame; aarch64 pointer authentication
    if (at >= end) return std::nullopt;
    if (letter == 'R') return *at;
    if (letter == 'L') {
      ++at;
    } else if (letter == 'P') {
      constexpr std::size_t sizes[] = {8, 0, 2, 4, 8};
      const unsigned format = *at++ & 0x07U;
      if (format >= std::size(sizes) || sizes[format] == 0) return std::nullopt;
      at += sizes[format];
    } else {
      return std::nullopt;
    }
  }
  return DW_EH_PE_absptr;
}

}  // namespace

std::vector<AddressRange> fde_ranges(const Image& image) {
  std::vector<AddressRange> ranges;
  const Section section = find_eh_frame(image);
  std::size_t ident_size = 0;
  const char* const ident = elf_getident(image.elf(), &ident_size);
  if (!section || ident == nullptr || !image.is_64bit()) return ranges;

  std::map<Dwarf_Off, std::optional<unsigned>> encodings;  // by offset of the CIE
  Dwarf_CFI_Entry entry;
  for (Dwarf_Off at = 0, next = 0;; at = next) {
    const int found =
        dwarf_next_cfi(reinterpret_cast<const unsigned char*>(ident), section.data, true, at, &next, &entry);
    if (found != 0 || next <= at) break;
    if (dwarf_cfi_cie_p(&entry)) {
      encodings[at] = fde_encoding(entry.cie);
      continue;
    }
    const auto encoding = encodings.find(entry.fde.CIE_pointer);
    if (encoding == encodings.end() || !encoding->second) continue;
    const std::uint8_t* bytes = entry.fde.start;
    const auto start = read_pointer(section, bytes, entry.fde.end, *encoding->second);
    // The size is in the same format, but never relative to anything.
    const auto size = read_pointer(section, bytes, entry.fde.end, *encoding->second & 0x0FU);
    if (start && size && *size != 0 && *start + *size > *start) ranges.push_back({*start, *start + *size});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  return ranges;
}

}  // namespace whomap
