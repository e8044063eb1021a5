// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/process/target.h"

namespace whomap {

/// Where a trace goes when nobody says it: whomap-COMM-PID-TIME.trace (local time) in the working folder.
std::string default_trace_name(const TargetIdentity& target);

}  // namespace whomap
