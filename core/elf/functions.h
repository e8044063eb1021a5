// SPDX-License-Identifier: Apache-2.0
// Where the functions of an image start and end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/elf/eh_frame.h"
#include "core/elf/image.h"
#include "core/process/vma.h"

namespace whomap {

/// What a function's boundaries are known from.
enum class BoundarySource {
  symbol,          ///< .symtab
  dynamic_symbol,  ///< .dynsym
  unwind_table,    ///< an FDE of .eh_frame; it has no name
  go_table,        ///< Go's .gopclntab
};

/// Link-time addresses, start up to and not including end.
struct Function {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::string_view name;  ///< empty when unknown; lives as long as the table
  BoundarySource source = BoundarySource::symbol;
};

/// The functions of one image, from .symtab and .dynsym (STT_FUNC and STT_GNU_IFUNC), Go's function table
/// and .eh_frame. A name is given only to addresses inside the symbol's own size: never that of the nearest
/// exported symbol.
class FunctionTable {
 public:
  /// Reads the image's tables once; a few hundred thousand entries take some tens of milliseconds.
  static FunctionTable read(std::shared_ptr<const Image> image);

  /// The innermost function that contains this link-time address.
  [[nodiscard]] std::optional<Function> lookup(std::uint64_t vaddr) const;

  /// The code around `vaddr` that no function claims: from the end of the function before it, or the start
  /// of its section, up to the next start. Empty when `vaddr` is in no executable section or segment.
  [[nodiscard]] std::optional<AddressRange> gap_around(std::uint64_t vaddr) const;

  /// Is it in a section of instructions and in no variable that a symbol puts there (tables of constants in
  /// assembler code)? Without section headers every executable segment counts.
  [[nodiscard]] bool is_code(std::uint64_t vaddr) const;

  /// All names of the function that starts at `vaddr`, aliases included.
  [[nodiscard]] std::vector<std::string_view> names_at(std::uint64_t vaddr) const;

 private:
  struct Symbol {
    std::uint64_t start, end;
    std::string_view name;
    BoundarySource source;
    bool local;
    bool name_covers;  ///< false: nothing says how far the name reaches
  };

  void read_symbols(std::uint32_t section_type, BoundarySource source);
  void read_code_sections();
  [[nodiscard]] bool in_section(std::uint64_t vaddr) const;
  void give_sizes(bool complete);

  std::shared_ptr<const Image> image_;
  std::vector<Symbol> symbols_;         ///< sorted by start, the preferred name of an address first
  std::vector<FrameRange> frames_;      ///< sorted by start
  std::vector<AddressRange> sections_;  ///< executable sections (segments without section headers)
  std::vector<AddressRange> data_;      ///< STT_OBJECT symbols in executable sections
  std::uint64_t longest_symbol_ = 0;
};

}  // namespace whomap
