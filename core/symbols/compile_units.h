// SPDX-License-Identifier: Apache-2.0
// The compile units of one Dwarf handle and the functions in them, found by address.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <elfutils/libdw.h>

#include "core/process/vma.h"
#include "core/symbols/line_table.h"

namespace whomap {

/// A function with its inlined calls around one address.
struct FunctionAt {
  Dwarf_Die function{};
  std::vector<Dwarf_Die> inlined;  ///< outermost first
};

class CompileUnit {
 public:
  explicit CompileUnit(Dwarf_Die unit) : unit_(unit), lines_(unit) {}

  std::optional<FunctionAt> function_at(std::uint64_t address);
  [[nodiscard]] const LineTable& lines() const { return lines_; }
  /// The call_file and call_line of an inlined call.
  std::optional<SourceLine> call_line(Dwarf_Die inlined);

 private:
  struct Function {
    AddressRange range;
    Dwarf_Die die;
  };
  void collect_functions(Dwarf_Die parent, int depth);
  bool descend(Dwarf_Die scope, std::uint64_t address, FunctionAt& found, int depth);

  Dwarf_Die unit_;
  LineTable lines_;
  bool collected_ = false;
  std::vector<Function> functions_;  ///< sorted by start
  std::uint64_t visited_ = 0;
};

class CompileUnits {
 public:
  explicit CompileUnits(Dwarf* dwarf);

  /// The unit whose ranges hold `address`, nullptr when none does.
  CompileUnit* find(std::uint64_t address);

 private:
  struct Range {
    AddressRange range;
    Dwarf_Die unit;
  };
  std::vector<Range> ranges_;  ///< sorted by start
  std::map<Dwarf_Off, std::unique_ptr<CompileUnit>> units_;
};

}  // namespace whomap
