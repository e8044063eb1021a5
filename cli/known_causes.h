// SPDX-License-Identifier: Apache-2.0
// The signatures that lie beside the program, and those of the user.
#pragma once

#include "cli/command.h"
#include "core/match/match.h"

namespace whomap::cli {

/// Adds --signatures FILE to the command's options.
void add_signatures_option(CommandLine& line);

/// Those beside the program (where there are none, a line on standard error says so), and the user's, which
/// replace those of the same id. Errors: those of load_signatures().
Result<SignatureFile> signatures_of(const CommandLine& line);

}  // namespace whomap::cli
