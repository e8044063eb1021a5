// SPDX-License-Identifier: Apache-2.0
// A regular expression over names that come from a target.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace re2 {
class RE2;
}

namespace whomap {

/// RE2, and not std::regex: names are the target's, some kilobytes long where templates are, and std::regex
/// recurses once per character and may take exponential time. RE2's time is linear, its memory bounded.
class NamePattern {
 public:
  /// Error: usage, with RE2's own reason.
  static Result<NamePattern> compile(const std::string& expression);

  /// Found anywhere in `name`.
  [[nodiscard]] bool matches(std::string_view name) const;
  [[nodiscard]] const std::string& expression() const;

 private:
  explicit NamePattern(std::shared_ptr<const re2::RE2> regex) : regex_(std::move(regex)) {}
  std::shared_ptr<const re2::RE2> regex_;
};

}  // namespace whomap
