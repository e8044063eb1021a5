// SPDX-License-Identifier: Apache-2.0
// One module's code together with what is known of its functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/elf/functions.h"
#include "core/plan/code_view.h"
#include "core/plan/function_code.h"
#include "core/plan/instruction.h"

namespace whomap {

/// Boundaries of the code around an address, run-time addresses.
struct CodeBounds {
  AddressRange range;
  std::string name;          ///< empty when unknown
  bool entry_known = false;  ///< range.start is a function's entry
  bool entry_by_call =
      false;  ///< known only because it is called: what lies behind may be another function's
};

class ModuleCode {
 public:
  /// `functions` may be nullptr: memory without an image.
  ModuleCode(CodeView view, std::shared_ptr<const FunctionTable> functions, const InstructionSet& set,
             std::uint64_t bias, std::string path, std::string build_id);

  [[nodiscard]] const CodeView& view() const { return view_; }
  [[nodiscard]] const FunctionTable* functions() const { return functions_.get(); }
  [[nodiscard]] const InstructionSet& set() const { return set_; }
  [[nodiscard]] std::uint64_t bias() const { return bias_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& build_id() const { return build_id_; }

  /// The function, or the code that no function claims, around `address`; empty when the file says that
  /// there is data (read-only data in an executable segment).
  [[nodiscard]] std::optional<CodeBounds> bounds(std::uint64_t address) const;

  /// Looks for direct calls into code that no function claims around these addresses: each shows an entry.
  void find_called_entries(const std::vector<std::uint64_t>& addresses);

  /// The decoded code of these bounds; decoded once.
  const FunctionCode& code(const CodeBounds& bounds) const;

  /// Is there an instruction at `address`, decoding from a known start?
  [[nodiscard]] bool is_instruction(std::uint64_t address) const;

  /// The instruction at `address` as text, "(bad)" when there is none.
  [[nodiscard]] std::string text(std::uint64_t address) const;

 private:
  void narrow_to_called(CodeBounds& bounds, std::uint64_t address) const;

  CodeView view_;
  std::shared_ptr<const FunctionTable> functions_;
  const InstructionSet& set_;
  std::uint64_t bias_;
  std::string path_;
  std::string build_id_;
  std::vector<std::uint64_t> called_entries_;                                        ///< ascending
  mutable std::map<std::pair<std::uint64_t, std::uint64_t>, FunctionCode> decoded_;  ///< by start and end
};

}  // namespace whomap
