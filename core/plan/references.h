// SPDX-License-Identifier: Apache-2.0
// Which instructions of a module jump to, call, or go through given addresses?
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/module_code.h"

namespace whomap {

struct Reference {
  enum class Kind : std::uint8_t { call, jump, branch, call_through, jump_through };
  std::uint64_t address = 0;  ///< of the instruction
  std::uint64_t target = 0;   ///< where it goes, or the slot it goes through
  Kind kind = Kind::call;
};

struct ReferenceQuery {
  std::vector<AddressRange> targets{};  ///< of direct calls and jumps; ascending, disjoint
  bool branches = false;                ///< also conditional branches into `targets`
  std::vector<std::uint64_t> slots{};   ///< pointers that calls and jumps go through; ascending
};

/// References as asked for, ascending. Found by their bytes and then decoded, so that the cost is a pass over
/// the module's code: 100 MB in some tens of milliseconds.
std::vector<Reference> find_references(const ModuleCode& module, const ReferenceQuery& query);

/// The places of system call instructions' bytes, which may lie inside other instructions.
std::vector<std::uint64_t> find_system_call_bytes(const CodeView& view, const InstructionSet& set);

}  // namespace whomap
