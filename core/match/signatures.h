// SPDX-License-Identifier: Apache-2.0
// Known causes: frames and conditions that somebody has seen before. core/README.md documents the file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/symbols/frame.h"

namespace re2 {
class RE2;
}

namespace whomap {

/// A frame that matches both expressions; nullptr: any. Expressions are RE2's, found anywhere unless
/// anchored; `module` is matched against the file name, `function` against the demangled name.
struct FramePattern {
  std::shared_ptr<const re2::RE2> module, function;
};

/// The signature holds for some versions only: `of` finds the version in the path of a frame's module.
struct VersionCondition {
  std::shared_ptr<const re2::RE2> of;  ///< with one group; nullptr: no path tells the version
  std::string from, to;                ///< both included; empty: open
};

struct Signature {
  std::string id;
  std::vector<FramePattern> frames;   ///< in this order, innermost first; others may lie between
  std::vector<FramePattern> without;  ///< in no frame of the stack
  std::vector<std::string> classes;   ///< of the stack; empty: any
  std::optional<VersionCondition> version;
  /// Frames without a name in a module that fits count as possible: the module alone says something.
  bool nameless_possible = false;
  std::string cause;
  std::string remedy, hazard;  ///< both or neither
  std::string source;
  std::string certainty;  ///< "A": read in source or documentation, "B": measured by who reported it, "C":
                          ///< unconfirmed
};

/// What a signature says of one stack.
struct Advice {
  std::string signature;
  std::string cause;
  std::string remedy, hazard;  ///< empty where nothing can be advised
  std::string source;
  std::string certainty;
};

/// Errors: input_damaged, naming the signature and what is wrong with it (a remedy without its hazard, an
/// expression that RE2 refuses, ...); input_kind. `name` stands for the file in errors.
Result<std::vector<Signature>> signatures_from_text(std::string_view text, const std::string& name);
Result<std::vector<Signature>> load_signatures(const std::string& path);

/// Adds `more`; what has the id of an earlier one replaces it.
void add_signatures(std::vector<Signature>& signatures, std::vector<Signature> more);

/// What is known of this stack, surest first. `stack_class` is that of the report.
std::vector<Advice> known_causes(const std::vector<Signature>& signatures, const Stack& stack,
                                 std::string_view stack_class);

/// "1.9.2" < "1.10": number by number.
bool version_less(std::string_view left, std::string_view right);

}  // namespace whomap
