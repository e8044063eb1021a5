// SPDX-License-Identifier: Apache-2.0
// When is a call through a dispatcher one that is watched? In GDB's expression syntax.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/instruction.h"
#include "core/plan/value.h"

namespace whomap {

/// "$rax == 9 || $rax == 11": true at the system call instruction for the watched numbers.
std::string condition_at_syscall(const InstructionSet& set, const std::vector<std::int64_t>& numbers);

/// The same at the function's entry, where the number still is in the register or stack word that `number`
/// says; empty when it does not come from there.
std::string condition_at_entry(const InstructionSet& set, const Value& number,
                               const std::vector<std::int64_t>& numbers);

}  // namespace whomap
