// SPDX-License-Identifier: Apache-2.0
// From a live process to its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/elf/module_map.h"
#include "core/plan/plan.h"
#include "core/process/target.h"

namespace whomap {

struct PlanOptions {
  std::vector<std::int64_t> watched;  ///< x86-64 numbers; empty: the default calls of memory_syscalls
  std::string module_regex;           ///< only modules whose path matches; empty: all
};

/// Error usage when the options make no sense on any process (a module_regex that is no regular expression).
Result<void> check(const PlanOptions& options);

/// Decodes what the target executes (its memory where pages are private, else the file) and finds
/// the sites. Does not stop the target. Errors: unsupported_target (not x86-64), those of reading /proc.
Result<Plan> make_plan(const Target& target, const ModuleMap& modules, const PlanOptions& options);

/// The plan of an ELF file on disk, x86-64 or AArch64, at its link-time addresses. `options.watched` are
/// x86-64 numbers here too and are translated. Errors: unsupported_target.
Result<Plan> make_plan(std::shared_ptr<const Image> image, const PlanOptions& options);

/// The plan of the process, made afresh, with those sites watched that `plan` watches, be it of this process
/// or of another one: their addresses are recomputed from the offsets for `modules` and every site's code is
/// compared with the target's memory. `plan` only selects: addresses, bytes and numbers are the fresh plan's.
/// plan_mismatch names the first module or site that differs.
Result<Plan> rebase_plan(const Plan& plan, const Target& target, const ModuleMap& modules);

}  // namespace whomap
