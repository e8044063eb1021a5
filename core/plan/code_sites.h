// SPDX-License-Identifier: Apache-2.0
// The system call instructions of a module and what is known of their numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/module_code.h"
#include "core/plan/value.h"

namespace whomap {

/// One system call instruction. Run-time addresses.
struct CodeSite {
  std::uint64_t address = 0;
  std::uint64_t next = 0;  ///< the instruction after
  CodeBounds bounds;
  Value number;                             ///< in the number register, before the instruction
  std::optional<std::uint64_t> entry_jump;  ///< the function's entry was patched at run time: it jumps there
  std::optional<std::int64_t> own_number;   ///< of a patched function: the constant number in the file's code
  bool patched = false;                     ///< bytes of the function differ from the file's
  bool doubtful = false;                    ///< it may be data that happens to look like the instruction
};

/// All of them in the module, ascending. `rejected` counts the places where the bytes are part of another
/// instruction, or of data.
struct CodeSites {
  std::vector<CodeSite> sites;
  std::size_t rejected = 0;
};

CodeSites find_code_sites(ModuleCode& module);

}  // namespace whomap
