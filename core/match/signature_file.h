// SPDX-License-Identifier: Apache-2.0
// Reads a file of known causes. core/README.md documents it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/match/frame_roles.h"
#include "core/match/signatures.h"

namespace whomap {

struct SignatureFile {
  std::vector<Signature> stacks;
  std::vector<RegionSignature> regions;
  std::vector<ProcessSignature> processes;
  std::vector<FrameRule> frames;
};

/// Errors: input_damaged, naming the signature and what is wrong with it (a remedy without its hazard, an
/// expression that RE2 refuses, ...); input_kind. `name` stands for the file in errors.
Result<SignatureFile> signatures_from_text(std::string_view text, const std::string& name);
/// The same from a file; errors also: input_unreadable.
Result<SignatureFile> load_signatures(const std::string& path);

/// Adds `more`; what has the id of an earlier one replaces it. Its rules for frames come first.
void add_signatures(SignatureFile& signatures, SignatureFile more);

}  // namespace whomap
