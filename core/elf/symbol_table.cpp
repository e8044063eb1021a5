// SPDX-License-Identifier: Apache-2.0
#include "core/elf/symbol_table.h"

#include <gelf.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>

#include "core/elf/debug_file.h"

namespace whomap {
namespace {

bool in_executable_segment(const Image& image, std::uint64_t address) {
  return std::any_of(image.segments().begin(), image.segments().end(), [&](const Segment& segment) {
    return segment.executable && address >= segment.vaddr && address - segment.vaddr < segment.memory_size;
  });
}

std::uint64_t end_of_section(Elf* elf, const GElf_Sym& symbol) {
  GElf_Shdr header;
  if (symbol.st_shndx >= SHN_LORESERVE || gelf_getshdr(elf_getscn(elf, symbol.st_shndx), &header) == nullptr)
    return 0;
  const std::uint64_t end = header.sh_addr + header.sh_size;
  return symbol.st_value >= header.sh_addr && symbol.st_value < end ? end : 0;
}

}  // namespace

SymbolTable::SymbolTable(const Image& image) : fdes_(read_frame_ranges(image)) {
  read_all(image, SHT_SYMTAB);
  if (entries_.empty())
    if (const auto separate = separate_debug_file(image)) read_all(*separate, SHT_SYMTAB);
  read_all(image, SHT_DYNSYM);
  std::erase_if(entries_, [&](const Entry& entry) { return !in_executable_segment(image, entry.start); });
  // strip -x and ld -x leave a .symtab without the local symbols: no better than .dynsym.
  if (std::none_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.local_function; }))
    for (Entry& entry : entries_) entry.complete = false;
  sort();
}

void SymbolTable::read_all(const Image& symbols, unsigned section_type) {
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(symbols.elf(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) != nullptr && header.sh_type == section_type)
      read(symbols.elf(), section, section_type == SHT_SYMTAB);
  }
}

void SymbolTable::read(Elf* elf, Elf_Scn* section, bool complete) {
  GElf_Shdr header;
  Elf_Data* const data = elf_getdata(section, nullptr);
  if (gelf_getshdr(section, &header) == nullptr || data == nullptr || header.sh_entsize == 0) return;
  const std::size_t count = std::min<std::size_t>(data->d_size, header.sh_size) / header.sh_entsize;
  for (std::size_t i = 1; i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) return;
    const unsigned type = GELF_ST_TYPE(symbol.st_info);
    // Assembly code often leaves its symbols without a type.
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) continue;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
    const char* const text = elf_strptr(elf, header.sh_link, symbol.st_name);
    if (text == nullptr || *text == '\0') continue;
    std::string_view name(text);
    if (const std::size_t version = name.find('@'); version != std::string_view::npos && version > 0)
      name = name.substr(0, version);
    Entry entry;
    entry.name = name;
    entry.start = symbol.st_value;
    entry.size = symbol.st_size;
    entry.complete = complete;
    const bool local = GELF_ST_BIND(symbol.st_info) == STB_LOCAL;
    entry.local_function = type == STT_FUNC && local;
    entry.global_function = type == STT_FUNC && !local;
    entry.section_end = end_of_section(elf, symbol);
    entries_.push_back(std::move(entry));
  }
}

/// Aliases: of the symbols at one address GDB 13 shows one that has a size, rather a global function than a
/// local one, and of those the last in byte order. Measured on the aliased addresses of a static glibc
/// program, libc.so, libstdc++, libpython and node: the same choice for each. People compare with GDB's
/// output.
void SymbolTable::sort() {
  const auto key = [](const Entry& entry) {
    return std::tuple(entry.start, entry.size != 0, entry.global_function, std::string_view(entry.name),
                      entry.complete);
  };
  std::sort(entries_.begin(), entries_.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  for (const Entry& entry : entries_) largest_size_ = std::max(largest_size_, entry.size);
}

bool SymbolTable::fde_start_in(std::uint64_t after, std::uint64_t up_to) const {
  const auto next =
      std::upper_bound(fdes_.begin(), fdes_.end(), after,
                       [](std::uint64_t value, const FrameRange& fde) { return value < fde.start; });
  return next != fdes_.end() && next->start <= up_to;
}

const FrameRange* SymbolTable::fde_at(std::uint64_t address) const {
  const auto next =
      std::upper_bound(fdes_.begin(), fdes_.end(), address,
                       [](std::uint64_t value, const FrameRange& fde) { return value < fde.start; });
  if (next == fdes_.begin() || address >= std::prev(next)->end) return nullptr;
  return &*std::prev(next);
}

/// The FDE settles it. Code without any is left to the symbols alone, if they are complete: then the next
/// function's symbol is where this one ends. An exported symbol says nothing about what follows it.
bool SymbolTable::covers_without_size(const Entry& entry, std::uint64_t address) const {
  if (const FrameRange* const fde = fde_at(address)) return entry.start >= fde->start;
  return entry.complete && address < entry.section_end && !fde_start_in(entry.start, address);
}

const FunctionSymbol* SymbolTable::find(std::uint64_t address) const {
  const auto after =
      std::upper_bound(entries_.begin(), entries_.end(), address,
                       [](std::uint64_t value, const Entry& entry) { return value < entry.start; });
  if (after == entries_.begin()) return nullptr;
  const Entry& closest = *std::prev(after);
  // Outward, because a label in assembly code belongs to the function with a size that is around it.
  for (auto entry = after; entry != entries_.begin();) {
    --entry;
    if (address - entry->start >= largest_size_) break;
    if (address - entry->start < entry->size) return &*entry;
  }
  return closest.size == 0 && covers_without_size(closest, address) ? &closest : nullptr;
}

std::optional<std::uint64_t> SymbolTable::address_of(std::string_view name) const {
  std::optional<std::uint64_t> found;
  for (const Entry& entry : entries_) {
    if (entry.name != name) continue;
    if (found && *found != entry.start) return std::nullopt;
    found = entry.start;
  }
  return found;
}

}  // namespace whomap
