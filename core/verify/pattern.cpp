// SPDX-License-Identifier: Apache-2.0
#include "core/verify/pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

namespace whomap {

Result<NamePattern> NamePattern::compile(const std::string& expression) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_encoding(re2::RE2::Options::EncodingLatin1);  // a file name need not be UTF-8
  auto regex = std::make_shared<const re2::RE2>(expression, options);
  if (!regex->ok())
    return fail(ErrorCode::usage,
                fmt::format("'{}' is not a regular expression: {}", expression, regex->error()),
                "write it in RE2 syntax, for example 'Arena::(Extend|Alloc)'");
  if (re2::RE2::PartialMatch("", *regex))
    return fail(ErrorCode::usage, fmt::format("'{}' matches every name", expression),
                "name the function or module that is meant");
  return NamePattern(std::move(regex));
}

bool NamePattern::matches(std::string_view name) const {
  return re2::RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), *regex_);
}

const std::string& NamePattern::expression() const {
  return regex_->pattern();
}

}  // namespace whomap
