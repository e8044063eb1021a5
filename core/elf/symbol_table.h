// SPDX-License-Identifier: Apache-2.0
// Function symbols of an image, and which of them, if any, a code address belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/elf/image.h"
#include "core/process/vma.h"

namespace whomap {

struct FunctionSymbol {
  std::string name;         ///< as in the string table, without "@VERSION"
  std::uint64_t start = 0;  ///< link-time address
  std::uint64_t size = 0;   ///< 0: the assembler was not told
};

class SymbolTable {
 public:
  /// Reads .symtab of the image, or else of its separate debug file, and .dynsym.
  explicit SymbolTable(const Image& image);

  /// The symbol that covers `address`, nullptr when none provably does. A symbol with a size covers
  /// just that; one without covers its FDE. A function start of .eh_frame between a symbol and the
  /// address refutes the symbol: the address is then in a function whose name is not in the file.
  [[nodiscard]] const FunctionSymbol* find(std::uint64_t address) const;

 private:
  void read(Elf* elf, Elf_Scn* section, bool complete);
  void read_all(const Image& symbols, unsigned section_type);
  void keep_preferred();
  [[nodiscard]] bool fde_start_in(std::uint64_t after, std::uint64_t up_to) const;
  [[nodiscard]] const AddressRange* fde_at(std::uint64_t address) const;

  struct Entry : FunctionSymbol {
    bool complete = false;  ///< from .symtab, which names static functions too
    std::uint64_t section_end = 0;
  };
  std::vector<Entry> entries_;  ///< sorted by start, one for each
  std::vector<AddressRange> fdes_;
  std::uint64_t largest_size_ = 0;
};

}  // namespace whomap
