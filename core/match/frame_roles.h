// SPDX-License-Identifier: Apache-2.0
// What frames between a program and the kernel are: rules from frames.json, and from a file of the user's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/match/runtime.h"
#include "core/symbols/frame.h"

namespace re2 {
class RE2;
}

namespace whomap {

/// What a frame is on the way from the program to the kernel.
enum class FrameRole {
  program,    ///< none of the others: somebody's own code
  libc,       ///< C library, vDSO
  allocator,  ///< malloc and its relatives and wrappers, the memory managers of language runtimes
  standard,   ///< the C++ standard library: it asks for whoever uses it
  loader,     ///< dynamic linker
  hook,       ///< a library that stands between callers and the memory calls of libc
};

/// Expressions are RE2's, found anywhere unless anchored; empty: any.
struct FrameRule {
  FrameRole role = FrameRole::program;
  std::optional<Runtime> runtime;  ///< whose memory manager the frame belongs to
  std::string module;              ///< of the file name
  std::string function;            ///< of the name in each of its forms, see FrameRoles::rule_of
};

/// The list "frames" of a file of signatures; empty where the file has none. Errors: input_damaged, naming
/// the rule and what is wrong with it. `name` stands for the file.
Result<std::vector<FrameRule>> frame_rules_from_text(std::string_view text, const std::string& name);

class FrameRoles {
 public:
  /// The first rule that fits decides. Every expression must be RE2's (frame_rules_from_text sees to that).
  explicit FrameRoles(std::vector<FrameRule> rules);
  ~FrameRoles();
  FrameRoles(const FrameRoles&) = delete;
  FrameRoles& operator=(const FrameRoles&) = delete;

  /// Those of frames.json.
  static const FrameRoles& shipped();
  /// `own` before those of frames.json.
  static std::shared_ptr<const FrameRoles> with(std::vector<FrameRule> own);

  /// nullptr where no rule fits. A function's name is tried as it is demangled, as its qualified name alone
  /// (runtime.h), and plain: without "__GI_", "__libc_", "__" and the suffixes of versions and clones.
  [[nodiscard]] const FrameRule* rule_of(const Frame& frame, std::string_view module) const;

 private:
  struct Expressions;
  std::vector<FrameRule> rules_;
  std::unique_ptr<const Expressions> expressions_;
};

/// "__GI___libc_malloc" -> "malloc", "_int_malloc.isra.0" -> "_int_malloc"; names of operators stay.
std::string_view plain_name(const Frame& frame);

}  // namespace whomap
