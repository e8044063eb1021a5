// SPDX-License-Identifier: Apache-2.0
#include "core/elf/functions.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include <gelf.h>

#include "core/elf/go_functions.h"

namespace whomap {
namespace {

std::size_t leading_underscores(std::string_view name) {
  const auto first = name.find_first_not_of('_');
  return first == std::string_view::npos ? name.size() : first;
}

/// The last element that starts at or before `address`, or end().
template <class Range>
auto last_before(const Range& sorted, std::uint64_t address) {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), address,
                                [](std::uint64_t wanted, const auto& each) { return wanted < each.start; });
  return after == sorted.begin() ? sorted.end() : after - 1;
}

}  // namespace

FunctionTable FunctionTable::read(std::shared_ptr<const Image> image) {
  FunctionTable table;
  table.image_ = std::move(image);
  if (!table.image_->is_64bit() || std::endian::native != std::endian::little) return table;
  table.read_code_sections();
  table.frames_ = read_frame_ranges(*table.image_);
  table.read_symbols(SHT_SYMTAB, BoundarySource::symbol);
  const bool complete = !table.symbols_.empty();
  // .dynsym is a part of .symtab, where there is one.
  if (!complete) table.read_symbols(SHT_DYNSYM, BoundarySource::dynamic_symbol);
  if (!complete) {
    for (const GoFunction& each : read_go_functions(*table.image_))
      table.symbols_.push_back({each.start, each.end, each.name, BoundarySource::go_table, false, true});
  }
  table.give_sizes(complete);
  std::sort(table.data_.begin(), table.data_.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  return table;
}

void FunctionTable::read_symbols(std::uint32_t section_type, BoundarySource source) {
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(image_->elf(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != section_type) continue;
    const Elf_Data* data = elf_getdata(section, nullptr);
    Elf_Scn* const string_section = elf_getscn(image_->elf(), header.sh_link);
    const Elf_Data* strings = string_section == nullptr ? nullptr : elf_getdata(string_section, nullptr);
    if (data == nullptr || data->d_buf == nullptr || strings == nullptr || strings->d_buf == nullptr)
      continue;
    const std::string_view names(static_cast<const char*>(strings->d_buf), strings->d_size);
    const auto* const symbols = static_cast<const Elf64_Sym*>(data->d_buf);
    for (std::size_t i = 0; i < data->d_size / sizeof(Elf64_Sym); ++i) {
      const Elf64_Sym& symbol = symbols[i];
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_OBJECT && symbol.st_size != 0 && in_section(symbol.st_value)) {
        data_.push_back({symbol.st_value, symbol.st_value + symbol.st_size});
        continue;
      }
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
      if (symbol.st_value == 0 || symbol.st_value + symbol.st_size < symbol.st_value) continue;
      std::string_view name =
          symbol.st_name < names.size() ? names.substr(symbol.st_name) : std::string_view{};
      name = name.substr(0, name.find('\0'));
      symbols_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, name, source,
                          ELF64_ST_BIND(symbol.st_info) == STB_LOCAL, true});
    }
  }
}

void FunctionTable::read_code_sections() {
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(image_->elf(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    if ((header.sh_flags & SHF_EXECINSTR) != 0 && header.sh_type != SHT_NOBITS)
      sections_.push_back({header.sh_addr, header.sh_addr + header.sh_size});
  }
  if (sections_.empty())
    for (const Segment& segment : image_->segments())
      if (segment.executable) sections_.push_back({segment.vaddr, segment.vaddr + segment.file_size});
  std::sort(sections_.begin(), sections_.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
}

/// Sorts, and ends the symbols that have no size: assembler functions without a .size directive.
void FunctionTable::give_sizes(bool complete) {
  // Aliases: the name without underscores is the one that people know (mmap, not __mmap).
  std::sort(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
    const auto key = [](const Symbol& s) {
      return std::tuple(s.start, s.local, leading_underscores(s.name), s.name.size(), s.name);
    };
    return key(a) < key(b);
  });
  for (std::size_t i = 0; i < symbols_.size(); ++i) {
    Symbol& symbol = symbols_[i];
    if (symbol.end == symbol.start) {
      std::size_t next = i + 1;
      while (next < symbols_.size() && symbols_[next].start == symbol.start) ++next;
      const auto section = last_before(sections_, symbol.start);
      std::uint64_t end =
          section != sections_.end() && section->contains(symbol.start) ? section->end : symbol.start;
      if (next < symbols_.size()) end = std::min(end, symbols_[next].start);
      const auto frame = last_before(frames_, symbol.start);
      const bool described = frame != frames_.end() && symbol.start < frame->end;
      if (described)
        end = std::min(end, frame->end);
      else if (const auto following = frame == frames_.end() ? frames_.begin() : frame + 1;
               following != frames_.end())
        end = std::min(end, following->start);
      symbol.end = std::max(end, symbol.start);
      symbol.name_covers = complete || (described && frame->start == symbol.start);
    }
    longest_symbol_ = std::max(longest_symbol_, symbol.end - symbol.start);
  }
}

std::optional<Function> FunctionTable::lookup(std::uint64_t vaddr) const {
  const Symbol* found = nullptr;
  for (auto it = last_before(symbols_, vaddr); it != symbols_.end(); --it) {
    if (vaddr - it->start >= longest_symbol_) break;
    if (found != nullptr && it->start != found->start) break;
    if (vaddr < it->end) found = &*it;  // keeps going: the preferred name of this start comes first
    if (it == symbols_.begin()) break;
  }
  if (found != nullptr)
    return Function{found->start, found->end, found->name_covers ? found->name : std::string_view{},
                    found->source};
  const auto frame = last_before(frames_, vaddr);
  if (frame != frames_.end() && vaddr < frame->end)
    return Function{frame->start, frame->end, {}, BoundarySource::unwind_table};
  return std::nullopt;
}

std::optional<AddressRange> FunctionTable::gap_around(std::uint64_t vaddr) const {
  const auto section = last_before(sections_, vaddr);
  if (section == sections_.end() || vaddr >= section->end) return std::nullopt;
  AddressRange gap = *section;
  if (const auto symbol = last_before(symbols_, vaddr); symbol != symbols_.end()) {
    gap.start = std::max(gap.start, std::min(symbol->end, vaddr));
    if (symbol + 1 != symbols_.end()) gap.end = std::min(gap.end, (symbol + 1)->start);
  } else if (!symbols_.empty()) {
    gap.end = std::min(gap.end, symbols_.front().start);
  }
  if (const auto frame = last_before(frames_, vaddr); frame != frames_.end()) {
    gap.start = std::max(gap.start, std::min(frame->end, vaddr));
    if (frame + 1 != frames_.end()) gap.end = std::min(gap.end, (frame + 1)->start);
  } else if (!frames_.empty()) {
    gap.end = std::min(gap.end, frames_.front().start);
  }
  return gap;
}

bool FunctionTable::in_section(std::uint64_t vaddr) const {
  const auto section = last_before(sections_, vaddr);
  return section != sections_.end() && section->contains(vaddr);
}

bool FunctionTable::is_code(std::uint64_t vaddr) const {
  const auto data = last_before(data_, vaddr);
  return in_section(vaddr) && (data == data_.end() || !data->contains(vaddr));
}

std::vector<std::string_view> FunctionTable::names_at(std::uint64_t vaddr) const {
  std::vector<std::string_view> names;
  auto it = std::lower_bound(symbols_.begin(), symbols_.end(), vaddr,
                             [](const Symbol& each, std::uint64_t wanted) { return each.start < wanted; });
  for (; it != symbols_.end() && it->start == vaddr; ++it) names.push_back(it->name);
  return names;
}

}  // namespace whomap
