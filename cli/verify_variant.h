// SPDX-License-Identifier: Apache-2.0
// One variant, measured: started or found, made ready, put under load, ended again.
#pragma once

#include <string>

#include "cli/verify_options.h"
#include "core/verify/outcome.h"

namespace whomap::cli {

/// `name` is "subject" or "control". The subject is options.pid or options.command, the control
/// options.control. Errors end verify: no such process, a program that cannot be started or is never ready, a
/// trace that fails.
Result<VariantResult> measure_variant(const VerifyOptions& options, const std::string& name);

}  // namespace whomap::cli
