// SPDX-License-Identifier: Apache-2.0
// Is there room at a system call for a stub: an instruction that a jump can take the place of, on the only
// path to the call?
#pragma once

#include <vector>

#include "core/plan/code_sites.h"
#include "core/plan/module_code.h"
#include "core/plan/plan.h"

namespace whomap {

/// For each of `sites`, in their order. A jump needs 5 bytes (E9 rel32); it takes the place of one
/// instruction, so that no thread can ever stand between its bytes. One pass over the module's code looks for
/// jumps past it.
std::vector<StubRoom> find_stub_rooms(const ModuleCode& module, const std::vector<CodeSite>& sites);

}  // namespace whomap
