// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace whomap {

/// Takes the first line off `rest`, without its newline; a last line need not have one.
inline std::string_view next_line(std::string_view& rest) {
  const std::size_t newline = rest.find('\n');
  const std::string_view line = rest.substr(0, newline);
  rest.remove_prefix(newline == std::string_view::npos ? rest.size() : newline + 1);
  return line;
}

}  // namespace whomap
