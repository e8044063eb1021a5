// SPDX-License-Identifier: Apache-2.0
// Source lines of one compile unit by address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <elfutils/libdw.h>

namespace whomap {

struct SourceLine {
  std::string file;  ///< as the compiler recorded it, with its folder where that is known
  std::uint32_t line = 0;
};

class LineTable {
 public:
  explicit LineTable(Dwarf_Die unit);

  /// nullopt where the table has no line for the address, or says line 0 ("from no line of the source").
  [[nodiscard]] std::optional<SourceLine> at(std::uint64_t address) const;

 private:
  struct Row {
    std::uint64_t address = 0;
    std::uint32_t line = 0;
    bool statement = false;
    bool end = false;            ///< first address after a sequence
    const char* file = nullptr;  ///< owned by the Dwarf handle
  };
  std::vector<Row> rows_;
};

}  // namespace whomap
