// SPDX-License-Identifier: Apache-2.0
#include "core/elf/eh_frame.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include <dwarf.h>
#include <gelf.h>

namespace whomap {
namespace {

/// Bytes of a section or segment, with the address they are linked at.
struct Bytes {
  std::span<const std::uint8_t> data;
  std::uint64_t vaddr = 0;
};

/// Reads values from `Bytes`; after a read past the end `good` is false and all values are 0.
class Cursor {
 public:
  Cursor(Bytes bytes, std::size_t position) : bytes_(bytes), position_(position) {
    good_ = position <= bytes.data.size();
  }

  template <class T>
  T take() {
    T value{};
    if (!good_ || bytes_.data.size() - position_ < sizeof(T)) {
      good_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::uint64_t take_uleb128() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; good_; shift += 7) {
      const auto byte = take<std::uint8_t>();
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) break;
    }
    return value;
  }

  /// A pointer in one of the DW_EH_PE encodings (LSB 10.5). Encodings relative to anything but the place
  /// itself do not occur in linked x86-64 and AArch64 code.
  std::optional<std::uint64_t> take_pointer(std::uint8_t encoding) {
    const std::uint64_t place = vaddr();
    std::uint64_t value = 0;
    switch (encoding & 0x0FU) {
      case DW_EH_PE_absptr:
      case DW_EH_PE_udata8:
      case DW_EH_PE_sdata8: value = take<std::uint64_t>(); break;
      case DW_EH_PE_udata2: value = take<std::uint16_t>(); break;
      case DW_EH_PE_udata4: value = take<std::uint32_t>(); break;
      case DW_EH_PE_sdata2:
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(take<std::int16_t>()));
        break;
      case DW_EH_PE_sdata4:
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(take<std::int32_t>()));
        break;
      case DW_EH_PE_uleb128: value = take_uleb128(); break;
      default: return std::nullopt;
    }
    switch (encoding & 0x70U) {
      case DW_EH_PE_absptr: return good_ ? std::optional(value) : std::nullopt;
      case DW_EH_PE_pcrel: return good_ ? std::optional(place + value) : std::nullopt;
      default: return std::nullopt;
    }
  }

  void skip(std::uint64_t count) {
    if (!good_ || count > bytes_.data.size() - position_)
      good_ = false;
    else
      position_ += count;
  }

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] std::uint64_t vaddr() const { return bytes_.vaddr + position_; }
  [[nodiscard]] bool good() const { return good_; }

 private:
  Bytes bytes_;
  std::size_t position_;
  bool good_ = true;
};

struct Cie {
  std::uint8_t fde_encoding = DW_EH_PE_absptr;
  bool signal_frame = false;
};

/// The CIE at `position` (its length field).
std::optional<Cie> read_cie(Bytes bytes, std::size_t position) {
  Cursor cie(bytes, position);
  if (cie.take<std::uint32_t>() == 0xFFFFFFFFU) cie.skip(8);
  if (cie.take<std::uint32_t>() != 0) return std::nullopt;
  const auto version = cie.take<std::uint8_t>();
  std::string augmentation;
  for (char letter = cie.take<char>(); letter != 0 && cie.good(); letter = cie.take<char>())
    augmentation += letter;
  if (augmentation.empty()) return Cie{};
  if (augmentation.front() != 'z') return std::nullopt;
  cie.take_uleb128();  // code alignment
  cie.take_uleb128();  // data alignment: signed, of the same length
  if (version == 1)
    cie.take<std::uint8_t>();
  else
    cie.take_uleb128();  // return address register
  cie.take_uleb128();    // length of the augmentation data
  Cie result;
  result.signal_frame = augmentation.find('S') != std::string::npos;
  for (const char letter : augmentation) {
    if (letter == 'R') result.fde_encoding = cie.take<std::uint8_t>();
    if (letter == 'L') cie.take<std::uint8_t>();
    if (letter == 'P') cie.take_pointer(cie.take<std::uint8_t>());
  }
  return cie.good() ? std::optional(result) : std::nullopt;
}

/// `stop_at_zero`: the end is only known by its terminator. In a section a zero length may stand in the
/// middle, where the linker put entries behind crtend.o's terminator.
std::vector<FrameRange> walk(Bytes bytes, bool stop_at_zero, bool is_x86) {
  std::vector<FrameRange> ranges;
  std::size_t known_cie = ~std::size_t{0};
  std::optional<Cie> cie;
  for (std::size_t position = 0; position + 4 <= bytes.data.size();) {
    Cursor entry(bytes, position);
    std::uint64_t length = entry.take<std::uint32_t>();
    if (length == 0) {
      if (stop_at_zero) break;
      position += 4;
      continue;
    }
    if (length == 0xFFFFFFFFU) length = entry.take<std::uint64_t>();
    const std::size_t body = entry.position();
    if (!entry.good() || length < 4 || length > bytes.data.size() - body) break;
    position = body + length;
    const auto cie_pointer = entry.take<std::uint32_t>();
    if (cie_pointer == 0 || cie_pointer > body) continue;  // a CIE, or nonsense
    if (body - cie_pointer != known_cie) {
      known_cie = body - cie_pointer;
      cie = read_cie(bytes, known_cie);
    }
    if (!cie) continue;
    auto start = entry.take_pointer(cie->fde_encoding);
    auto size = entry.take_pointer(cie->fde_encoding & 0x0FU);
    // glibc's __restore_rt: its FDE starts one byte early, inside the padding, because unwinders look up
    // return address - 1 (glibc, sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c).
    if (cie->signal_frame && is_x86 && start && size && *size > 1) {
      ++*start;
      --*size;
    }
    // Start 0: the function was dropped by the linker (--gc-sections leaves such entries behind).
    if (start && size && *start != 0 && *size != 0 && *start + *size > *start)
      ranges.push_back({*start, *start + *size});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const FrameRange& a, const FrameRange& b) { return a.start < b.start; });
  return ranges;
}

std::span<const std::uint8_t> as_span(const Elf_Data* data) {
  if (data == nullptr || data->d_buf == nullptr) return {};
  return {static_cast<const std::uint8_t*>(data->d_buf), data->d_size};
}

std::optional<Bytes> section_bytes(const Image& image) {
  std::size_t names = 0;
  if (elf_getshdrstrndx(image.elf(), &names) != 0) return std::nullopt;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(image.elf(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
    const char* name = elf_strptr(image.elf(), names, header.sh_name);
    if (name == nullptr || std::strcmp(name, ".eh_frame") != 0) continue;
    return Bytes{as_span(elf_rawdata(section, nullptr)), header.sh_addr};
  }
  return std::nullopt;
}

/// Without section headers: PT_GNU_EH_FRAME points at .eh_frame_hdr, which points at .eh_frame (LSB 10.6.2).
std::optional<Bytes> segment_bytes(const Image& image) {
  std::size_t count = 0;
  if (elf_getphdrnum(image.elf(), &count) != 0) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(image.elf(), static_cast<int>(i), &header) == nullptr) continue;
    if (header.p_type != PT_GNU_EH_FRAME) continue;
    const Elf_Data* data = elf_getdata_rawchunk(image.elf(), static_cast<std::int64_t>(header.p_offset),
                                                header.p_filesz, ELF_T_BYTE);
    Cursor cursor(Bytes{as_span(data), header.p_vaddr}, 0);
    cursor.take<std::uint8_t>();  // version
    const auto pointer_encoding = cursor.take<std::uint8_t>();
    cursor.skip(2);
    const auto start = cursor.take_pointer(pointer_encoding);
    if (!start) return std::nullopt;
    for (const Segment& segment : image.segments()) {
      if (*start < segment.vaddr || *start >= segment.vaddr + segment.file_size) continue;
      const std::uint64_t skipped = *start - segment.vaddr;
      const Elf_Data* chunk =
          elf_getdata_rawchunk(image.elf(), static_cast<std::int64_t>(segment.offset + skipped),
                               segment.file_size - skipped, ELF_T_BYTE);
      return Bytes{as_span(chunk), *start};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<FrameRange> read_frame_ranges(const Image& image) {
  if (!image.is_64bit()) return {};
  if (const auto section = section_bytes(image)) return walk(*section, false, image.machine() == EM_X86_64);
  if (const auto segment = segment_bytes(image)) return walk(*segment, true, image.machine() == EM_X86_64);
  return {};
}

}  // namespace whomap
