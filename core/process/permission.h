// SPDX-License-Identifier: Apache-2.0
// May this process be traced, and if not, which of the many reasons is it?
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/process/status.h"
#include "core/process/target.h"

namespace whomap {

/// The facts that decide about ptrace attach (man 2 ptrace, "Ptrace access mode checking"), gathered
/// by read_access_facts() or written down by a test.
struct AccessFacts {
  ProcessStatus target;
  std::string tracer_name;  ///< comm of target.tracer_pid, when it has one
  uid_t own_uid = 0;
  std::uint64_t own_capabilities = 0;  ///< effective set of this process
  std::optional<int> yama_scope;       ///< nullopt: the kernel has no Yama
  std::optional<bool> dumpable;        ///< prctl(PR_GET_DUMPABLE) of the target, as far as /proc tells
  /// PTRACE_MODE_ATTACH was granted: /proc/PID/mem opened. This is the kernel's own answer, with
  /// credentials, Yama and every other security module asked; it has no effect on the target.
  bool attach_access = false;
};

AccessFacts read_access_facts(const Target& target);

/// Nothing when an attach should work; else the first reason against it, in this order: zombie,
/// already traced, stopped, then what explains a refused access: Yama's strictest setting, other user,
/// not dumpable, capabilities, Yama. Unknown reasons are said to be unknown.
std::optional<Error> attach_obstacle(const AccessFacts& facts);

}  // namespace whomap
