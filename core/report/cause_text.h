// SPDX-License-Identifier: Apache-2.0
// Known causes in the report for people: each is told once and referred to after that.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "core/match/signatures.h"
#include "core/report/layout.h"

namespace whomap {

class CauseText {
 public:
  /// `width` in columns.
  CauseText(const Paint& paint, std::size_t width) : paint_(paint), width_(width) {}

  /// With its remedy, hazard and source; a line that says where, when it was told there already.
  std::string text(const Advice& advice, const std::string& where);
  /// The same, and nothing when it was told already; begins with what it is about.
  std::string text_once(const Advice& advice, const std::string& about);

 private:
  [[nodiscard]] std::string whole(const Advice& advice, const std::string& about) const;
  [[nodiscard]] std::string part(const std::string& name, const std::string& text) const;

  const Paint& paint_;
  std::size_t width_;
  std::map<std::pair<std::string, std::string>, std::string> told_;  ///< signature and cause: where
};

}  // namespace whomap
