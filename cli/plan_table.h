// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan/plan.h"

namespace whomap::cli {

/// The plan for people, in lines of at most 100 columns as far as names allow.
std::string plan_table(const Plan& plan);

}  // namespace whomap::cli
