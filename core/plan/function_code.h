// SPDX-License-Identifier: Apache-2.0
// The instructions of one function, as the target executes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/code_view.h"
#include "core/plan/instruction.h"
#include "core/process/vma.h"

namespace whomap {

struct FunctionCode {
  AddressRange range;                         ///< run-time addresses
  bool entry_known = false;                   ///< range.start is where callers enter
  std::vector<Instruction> instructions{};    ///< ascending; gaps are bytes that are no instruction any more
  std::vector<AddressRange> patched{};        ///< bytes that differ from the file's
  std::optional<std::uint64_t> entry_jump{};  ///< the patched entry jumps there
  bool undecodable = false;                   ///< some bytes were no instruction and were skipped
  std::vector<std::uint64_t>
      jump_table_targets{};      ///< ascending, when an indirect jump's table could be read
  bool unresolved_jump = false;  ///< an indirect jump may go anywhere in the function

  /// Index of the instruction that starts at `address`, -1 when none does.
  [[nodiscard]] std::ptrdiff_t index_of(std::uint64_t address) const;
};

/// Decodes `range`, which is code without a break from its start. Where memory differs from the file, the
/// instruction boundaries behind the changed bytes are those of the file: a jump written over an entry
/// seldom ends where an instruction does.
FunctionCode decode_function(const CodeView& view, const InstructionSet& set, AddressRange range,
                             bool entry_known);

/// The same from the file, as if nothing had been changed.
FunctionCode decode_original(const CodeView& view, const InstructionSet& set, AddressRange range,
                             bool entry_known);

/// Does linear decoding from `start` come to an instruction at `address`? The quick check that sorts out
/// bytes inside other instructions.
bool decodes_to(const CodeView& view, const InstructionSet& set, std::uint64_t start, std::uint64_t address);

}  // namespace whomap
