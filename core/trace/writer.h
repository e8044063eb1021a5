// SPDX-License-Identifier: Apache-2.0
// Writes a trace file record by record, so that a killed writer leaves everything up to its last line.
#pragma once

#include <string>
#include <string_view>

#include "core/base/files.h"
#include "core/trace/records.h"

namespace whomap {

class TraceWriter {
 public:
  static Result<TraceWriter> create(const std::string& path, bool overwrite, const TraceHeader& header);

  Result<void> stack(const Stack& stack);  ///< once per distinct stack, before its first event
  Result<void> event(const TraceEvent& event);
  Result<void> snapshot(const Snapshot& snapshot);
  Result<void> lost(const LostRecord& lost);
  Result<void> note(const std::string& text);
  /// A better version of the frames of a stack that was written before: the same frames with names.
  /// Written as type "symbols" {"stack": id, "frames": [...]}.
  Result<void> symbols(const Stack& stack);
  /// The last record; closes the file.
  Result<void> end(const TraceEnd& end);
  Result<void> flush();

  /// Copies a line of another trace as it stands, without its newline (see TraceVisitor::line).
  Result<void> copy_line(std::string_view line);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  explicit TraceWriter(OutputFile file) : file_(std::move(file)) {}
  Result<void> line(const nlohmann::ordered_json& record);
  OutputFile file_;
  std::string event_line_;  ///< reused, so that an event costs no allocation
};

}  // namespace whomap
