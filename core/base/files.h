// SPDX-License-Identifier: Apache-2.0
// Reading whole small files, and creating result files safely: private, never through a link,
// never over something that is there unless that was asked for.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

/// Hands the file to `piece` as it is read, in pieces of any length that are gone after the call: nothing
/// grows with the file. Errors: input_unreadable.
Result<void> read_in_pieces(const std::string& path, const std::function<void(std::string_view)>& piece);

/// The whole content of a file of unknown size (files in /proc report size 0).
Result<std::string> read_file(const std::string& path);

/// A result file under construction. The name is `path` from the start, so that a reader can
/// follow it and a killed writer leaves what it had. Mode 0600, O_NOFOLLOW; with `overwrite` an
/// existing regular file is replaced by a new one under the same name (its old mode is not kept).
/// `path` "-" is standard output.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path, bool overwrite);

  /// Appends to a buffer that is written out when it is full, on flush() and on finish().
  Result<void> write(std::string_view text);
  Result<void> flush();
  /// Flushes and closes; the last chance to learn that the disk is full.
  Result<void> finish();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
  std::string buffer_;
};

}  // namespace whomap
