// SPDX-License-Identifier: Apache-2.0
// A culprit in words.
#pragma once

#include <string>

#include "core/match/match.h"

namespace whomap {

/// The culprit and where it is; for one without a good name of its own also who calls it.
std::string who(const Answer& answer, const StackAnswer& row);

/// "malloc", or the memory manager of a runtime with it.
std::string allocator_text(const StackAnswer& row);

/// Is it code without a name that no file holds: compiled, or interpreted, by a runtime?
bool is_nameless_runtime_code(const Frame& frame);

}  // namespace whomap
