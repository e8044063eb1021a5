// SPDX-License-Identifier: Apache-2.0
// Everything known about one image's functions: DWARF where there is some, symbols else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/elf/debug_file.h"
#include "core/elf/go_functions.h"
#include "core/elf/image.h"
#include "core/elf/symbol_table.h"
#include "core/symbols/compile_units.h"
#include "core/symbols/frame.h"

namespace whomap {

class ImageSymbols {
 public:
  explicit ImageSymbols(std::shared_ptr<const Image> image);

  /// See Symboliser::frames. Cached; the reference stays valid.
  const std::vector<Frame>& frames(std::uint64_t offset, bool exact);

  /// Where the function that has the code at `address` begins.
  std::optional<std::uint64_t> function_entry(std::uint64_t address);

  [[nodiscard]] const SymbolTable& table() const { return table_; }
  /// nullptr without DWARF.
  CompileUnits* units() { return units_ ? &*units_ : nullptr; }

 private:
  [[nodiscard]] const GoFunction* go_function(std::uint64_t address) const;
  std::vector<Frame> look_up(std::uint64_t offset, bool exact);

  std::shared_ptr<const Image> image_;
  SymbolTable table_;
  std::vector<GoFunction> go_functions_;  ///< what a stripped Go binary keeps
  std::optional<DebugInfo> debug_info_;
  std::optional<CompileUnits> units_;
  std::map<std::pair<std::uint64_t, bool>, std::vector<Frame>> frames_;
};

}  // namespace whomap
