// SPDX-License-Identifier: Apache-2.0
#include "core/elf/go_functions.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include <gelf.h>

namespace whomap {
namespace {

struct Sections {
  std::span<const std::uint8_t> table;
  std::uint64_t text = 0;
};

std::optional<Sections> find_sections(Elf* elf) {
  Sections found;
  std::size_t names = 0;
  if (elf_getshdrstrndx(elf, &names) != 0) return std::nullopt;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    const char* const raw_name = elf_strptr(elf, names, header.sh_name);
    const std::string_view name = raw_name == nullptr ? "" : raw_name;
    if (name == ".text") found.text = header.sh_addr;
    if (name != ".gopclntab" && name != ".data.rel.ro.gopclntab") continue;
    const Elf_Data* const data = elf_rawdata(section, nullptr);
    if (data != nullptr && data->d_buf != nullptr)
      found.table = {static_cast<const std::uint8_t*>(data->d_buf), data->d_size};
  }
  return found.table.empty() ? std::nullopt : std::optional(found);
}

template <class T>
std::optional<T> at(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Where the header's fields are; the words are pointer-sized.
struct Layout {
  std::uint64_t text_start;  ///< 0: none, entries are whole addresses
  std::uint64_t names;
  std::uint64_t functions;
  std::uint64_t entry_size;  ///< bytes of an address in the function table
};

std::optional<Layout> layout_of(std::uint32_t magic) {
  if (magic == 0xFFFFFFF1U || magic == 0xFFFFFFF0U) return Layout{24, 32, 64, 4};  // Go 1.20, Go 1.18
  if (magic == 0xFFFFFFFAU) return Layout{0, 24, 56, 8};                           // Go 1.16
  return std::nullopt;
}

std::string_view name_at(std::span<const std::uint8_t> table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto* const text = reinterpret_cast<const char*>(table.data() + offset);
  return {text, ::strnlen(text, table.size() - offset)};
}

}  // namespace

std::vector<GoFunction> read_go_functions(const Image& image) {
  std::vector<GoFunction> functions;
  if (!image.is_64bit()) return functions;
  const auto sections = find_sections(image.elf());
  if (!sections) return functions;
  const auto table = sections->table;
  const auto layout = layout_of(at<std::uint32_t>(table, 0).value_or(0));
  constexpr std::uint64_t pointer_size_field = 7;
  constexpr std::uint64_t count_field = 8;
  if (!layout || at<std::uint8_t>(table, pointer_size_field) != 8) return functions;
  const auto count = at<std::uint64_t>(table, count_field);
  const auto names = at<std::uint64_t>(table, layout->names);
  const auto start = at<std::uint64_t>(table, layout->functions);
  if (!count || !names || !start || *start > table.size()) return functions;
  std::uint64_t base = 0;
  if (layout->text_start != 0) {
    // Position-independent binaries have it filled in at load time.
    base = at<std::uint64_t>(table, layout->text_start).value_or(0);
    if (base == 0) base = sections->text;
  }
  const std::uint64_t size = layout->entry_size;
  const auto field = [&](std::uint64_t offset) -> std::optional<std::uint64_t> {
    if (size == 8) return at<std::uint64_t>(table, offset);
    return at<std::uint32_t>(table, offset);
  };
  const std::uint64_t most = (table.size() - *start) / (2 * size);
  for (std::uint64_t i = 0; i < std::min(*count, most); ++i) {
    const auto entry = field(*start + i * 2 * size);
    const auto description = field(*start + i * 2 * size + size);
    const auto next = field(*start + (i + 1) * 2 * size);
    if (!entry || !description || !next || *next <= *entry) continue;
    const auto name = at<std::int32_t>(table, *start + *description + size);
    functions.push_back({base + *entry, base + *next,
                         name && *name >= 0 ? name_at(table, *names + static_cast<std::uint64_t>(*name))
                                            : std::string_view{}});
  }
  return functions;
}

}  // namespace whomap
