// SPDX-License-Identifier: Apache-2.0
// From what the code shows to a site of the plan: numbers, conditions, and how it is watched.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/callers.h"
#include "core/plan/code_sites.h"
#include "core/plan/module_code.h"
#include "core/plan/plan.h"

namespace whomap {

/// Nothing when no watched number can pass through the instruction.
std::optional<Site> site_of(const ModuleCode& module, const CodeSite& found,
                            const std::vector<std::int64_t>& watched);

/// Nothing when the caller does not put one watched number into the dispatcher's parameter.
std::optional<Site> site_of(const ModuleCode& module, const DispatcherCall& call,
                            const std::vector<std::int64_t>& watched);

}  // namespace whomap
