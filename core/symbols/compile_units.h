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

/// DW_TAG_call_site: a call that the compiler describes (DWARF 5, section 3.4).
struct CallSite {
  std::uint64_t return_address = 0;
  bool tail = false;
  std::optional<Dwarf_Die> callee;  ///< nullopt for an indirect call
};

class CompileUnit {
 public:
  explicit CompileUnit(Dwarf_Die unit) : unit_(unit), lines_(unit) {}

  std::optional<FunctionAt> function_at(std::uint64_t address);
  /// The entry of the only out-of-line instance of `function` (any of its DIEs) in this unit.
  std::optional<std::uint64_t> entry_of(Dwarf_Die function);
  /// The calls that `function`, a DIE of function_at(), makes; nothing where the compiler did not say.
  std::vector<CallSite> calls_of(Dwarf_Die function);
  [[nodiscard]] const LineTable& lines() const { return lines_; }
  /// The call_file and call_line of an inlined call.
  std::optional<SourceLine> call_line(Dwarf_Die inlined);

 private:
  struct Function {
    AddressRange range;
    Dwarf_Die die;
  };
  void collect_functions(Dwarf_Die parent, int depth);
  void collect_calls(Dwarf_Die scope, std::vector<CallSite>& calls, int depth);
  void need_functions();
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
