// SPDX-License-Identifier: Apache-2.0
// Known causes: frames and conditions that somebody has seen before. core/README.md documents the file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/regions/snapshot.h"
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

/// What every signature says.
struct KnownCause {
  std::string id;
  std::string cause;
  std::string remedy, hazard;  ///< both or neither
  std::string source;
  std::string certainty;  ///< "A": read in source or documentation, "B": measured by who reported it, "C":
                          ///< unconfirmed
};

/// Of a stack.
struct Signature : KnownCause {
  std::vector<FramePattern> frames;       ///< in this order, innermost first; others may lie between
  std::vector<FramePattern> without;      ///< in no frame of the stack
  std::vector<std::string> classes;       ///< of the stack; empty: any
  std::vector<std::string> region_kinds;  ///< the stack's growth lies in a region of one; empty: any
  std::optional<VersionCondition> version;
  /// Frames without a name in a module that fits count as possible: the module alone says something.
  bool nameless_possible = false;
};

/// Of a region, whatever mapped it. All conditions that are given must hold.
struct RegionSignature : KnownCause {
  std::shared_ptr<const re2::RE2> name;  ///< of the whole name in maps
  std::vector<std::string> kinds;        ///< of the region
  std::string flag;                      ///< of VmFlags, two letters
  bool file_pages = false;               ///< it can only hold pages of a file
  /// Least part of what is resident: AnonHugePages, LazyFree.
  std::optional<double> huge_pages, lazy_free;
};

/// Of a process that has a file mapped, where the answer names no stack for it.
struct ProcessSignature : KnownCause {
  std::shared_ptr<const re2::RE2> mapped;  ///< name of the file
  std::vector<std::string> verdicts;       ///< classes of the answer
};

/// What a signature says of one stack.
struct Advice {
  std::string signature;
  std::string cause;
  std::string remedy, hazard;  ///< empty where nothing can be advised
  std::string source;
  std::string certainty;
};

/// What is known of this stack, surest first. `stack_class` is that of the report, `region_kinds` are the
/// classes of the regions in which its growth lies.
std::vector<Advice> known_causes(const std::vector<Signature>& signatures, const Stack& stack,
                                 std::string_view stack_class,
                                 std::span<const std::string> region_kinds = {});
/// The same of a region of class `kind`.
std::vector<Advice> known_region_causes(const std::vector<RegionSignature>& signatures, const Region& region,
                                        std::string_view kind);
/// The same of a process, by what it has mapped.
std::vector<Advice> known_process_causes(const std::vector<ProcessSignature>& signatures,
                                         const Snapshot& snapshot, std::string_view verdict);

/// "1.9.2" < "1.10": number by number.
bool version_less(std::string_view left, std::string_view right);

}  // namespace whomap
