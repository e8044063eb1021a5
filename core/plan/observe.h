// SPDX-License-Identifier: Apache-2.0
// How often the variable sites are hit now, without stopping the target and without touching its code.
#pragma once

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/process/target.h"

namespace whomap {

/// Counts executions of the watched variable sites for `seconds` and fills in Site::observed and
/// Plan::observed_how.
///
/// Method: execution breakpoints in the processor's debug registers, counted by the kernel
/// (perf_event_open, PERF_TYPE_BREAKPOINT). Nothing is written into the target and no signal is raised; each
/// hit costs the thread that makes it some microseconds (a debug exception; 12 us on a virtual machine with
/// Linux 6.18). They are switched on in short windows only, so that the cost stays below one percent of the
/// time. Errors: process_ended, process_replaced; kernel_feature or not_permitted when the kernel refuses the
/// counters.
Result<void> observe(Plan& plan, const Target& target, double seconds);

}  // namespace whomap
