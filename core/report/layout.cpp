// SPDX-License-Identifier: Apache-2.0
#include "core/report/layout.h"

#include <algorithm>

#include <fmt/format.h>

namespace whomap {
namespace {

bool starts_code_point(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

/// Bytes of the first `count` code points.
std::size_t bytes_of(std::string_view text, std::size_t count) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (starts_code_point(text[i]) && count-- == 0) return i;
  return text.size();
}

}  // namespace

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string fit(std::string_view text, std::size_t width) {
  const std::size_t wide = columns(text);
  if (wide <= width) return std::string(text) + std::string(width - wide, ' ');
  if (width <= 3) return std::string(text.substr(0, bytes_of(text, width)));
  return std::string(text.substr(0, bytes_of(text, width - 3))) + "...";
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t first) {
  width = std::max(width, indent + 8);
  std::string out;
  std::size_t at = first;  // column
  bool line_empty = true;  // no word on this line yet
  const auto new_line = [&] {
    out += '\n';
    out.append(indent, ' ');
    at = indent;
    line_empty = true;
  };
  while (!text.empty()) {
    const std::size_t start = text.find_first_not_of(' ');
    if (start == std::string_view::npos) break;
    text.remove_prefix(start);
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    const std::size_t space = line_empty ? 0 : 1;
    if (at + space + columns(word) > width && !line_empty)
      new_line();
    else if (space != 0) {
      out += ' ';
      ++at;
    }
    while (at + columns(word) > width) {
      const std::size_t part = bytes_of(word, width > at ? width - at : 0);
      out += word.substr(0, part);
      word.remove_prefix(part);
      new_line();
    }
    out += word;
    at += columns(word);
    line_empty = false;
  }
  out += '\n';
  return out;
}

std::string Paint::paint(std::string_view code, std::string_view text) const {
  if (!color_ || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace whomap
