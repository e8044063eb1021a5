// SPDX-License-Identifier: Apache-2.0
// Lines of a file of any size through one buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

class LineSource {
 public:
  /// A longer line cannot be one of ours (a snapshot of a million mappings has 150 MB) and is skipped.
  static constexpr std::size_t longest_line = std::size_t{512} << 20;

  static Result<LineSource> open(const std::string& path);
  /// Reads from `text`, which must outlive the source.
  static LineSource over(std::string_view text);

  struct Line {
    std::string_view text;  ///< without its newline; valid until the next call
    bool whole = true;      ///< ended by a newline
    bool too_long = false;  ///< text is empty then
  };
  /// nullopt at the end. Errors: input_unreadable.
  Result<std::optional<Line>> next();

  /// The first bytes, as far as they can be had without moving on: at most 64 KiB.
  Result<std::string_view> peek();

  [[nodiscard]] std::uint64_t line_number() const { return line_number_; }

 private:
  LineSource() = default;
  Result<bool> refill();

  UniqueFd fd_;
  std::string path_;
  std::vector<char> buffer_;
  std::string_view rest_;  ///< not yet handed out
  bool at_end_ = false;
  bool skipping_ = false;
  std::uint64_t line_number_ = 0;
};

}  // namespace whomap
