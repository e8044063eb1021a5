// SPDX-License-Identifier: Apache-2.0
// Function symbols of an image, and which of them, if any, a code address belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/elf/eh_frame.h"
#include "core/elf/image.h"

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

  /// The symbol that covers `address`, nullptr when none provably does: then the address is in a function
  /// whose name is not in the file. A symbol with a size covers just that. One without covers its FDE; a
  /// function start of .eh_frame between it and the address refutes it. (A size is not refuted that way: of
  /// 250,000 functions in Debian 12's libraries 5 have two FDEs, such as glibc's clone, and all are right.)
  [[nodiscard]] const FunctionSymbol* find(std::uint64_t address) const;

  /// Where the functions of this name begin; nullopt when there is none or more than one.
  [[nodiscard]] std::optional<std::uint64_t> address_of(std::string_view name) const;

 private:
  struct Entry : FunctionSymbol {
    bool complete = false;  ///< from .symtab, which names static functions too
    bool global_function = false;
    bool local_function = false;
    std::uint64_t section_end = 0;
  };
  void read(Elf* elf, Elf_Scn* section, bool complete);
  void read_all(const Image& symbols, unsigned section_type);
  void sort();
  [[nodiscard]] bool fde_start_in(std::uint64_t after, std::uint64_t up_to) const;
  [[nodiscard]] const FrameRange* fde_at(std::uint64_t address) const;
  [[nodiscard]] bool covers_without_size(const Entry& entry, std::uint64_t address) const;

  std::vector<Entry> entries_;  ///< sorted by start; of aliases the preferred one is last
  std::vector<FrameRange> fdes_;
  std::uint64_t largest_size_ = 0;
};

}  // namespace whomap
