// SPDX-License-Identifier: Apache-2.0
// Lines of a given width, with or without colour.
#pragma once

#include <string>
#include <string_view>

namespace whomap {

/// Columns that printable text takes: code points, since wide characters are rare in names.
std::size_t columns(std::string_view text);

/// `text` cut or padded with spaces to `width` columns; a cut is marked by "...".
std::string fit(std::string_view text, std::size_t width);

/// Breaks at spaces so that no line is longer than `width`; a word that is longer is broken inside. Lines
/// after the first are indented by `indent` spaces. Every line ends in a newline. `first` columns of the
/// first line are taken already.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t first = 0);

/// ECMA-48 colours, or nothing at all.
class Paint {
 public:
  explicit Paint(bool color) : color_(color) {}
  [[nodiscard]] std::string bold(std::string_view text) const { return paint("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return paint("2", text); }
  [[nodiscard]] std::string red(std::string_view text) const { return paint("1;31", text); }
  [[nodiscard]] std::string green(std::string_view text) const { return paint("1;32", text); }
  [[nodiscard]] std::string yellow(std::string_view text) const { return paint("1;33", text); }

 private:
  [[nodiscard]] std::string paint(std::string_view code, std::string_view text) const;
  bool color_;
};

}  // namespace whomap
