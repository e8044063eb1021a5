// SPDX-License-Identifier: Apache-2.0
// Reads a trace file, streaming: memory does not grow with the number of events.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/trace/records.h"

namespace whomap {

/// What is called for each record. A record type without a callback is not decoded, and so not checked.
struct TraceVisitor {
  std::function<void(const TraceHeader&)> header;
  std::function<void(Stack)> stack;  ///< `symbols` records come here too: the later one replaces
  std::function<void(const TraceEvent&)> event;
  std::function<void(Snapshot)> snapshot;
  std::function<void(const LostRecord&)> lost;
  std::function<void(const std::string&)> note;
  std::function<void(const TraceEnd&)> end;
  std::function<void(const nlohmann::ordered_json&)> unknown;
  /// Every whole line as it stands, the header's first and damaged ones included: writing them to another
  /// file (TraceWriter::copy_line) keeps the types and fields that this version does not know.
  std::function<void(std::string_view)> line;
};

struct TraceReadSummary {
  bool cut = false;           ///< no `end` record: the writer was killed or is still writing
  bool cut_line = false;      ///< the last line is not whole
  std::uint64_t records = 0;  ///< whole ones, the header not counted
  std::uint64_t damaged_lines = 0;
  std::vector<std::uint64_t> damaged_line_numbers;  ///< the first 20, counted from 1
};

/// The only version there is so far.
inline constexpr std::uint64_t trace_version = 1;

/// Errors: input_unreadable; input_kind (not a whomap trace, saying what it looks like; a newer version);
/// input_damaged (the header line is not whole).
Result<TraceReadSummary> read_trace(const std::string& path, const TraceVisitor& visitor);
/// The same from a buffer; `name` stands for the path in errors.
Result<TraceReadSummary> read_trace_text(std::string_view text, const std::string& name,
                                         const TraceVisitor& visitor);

}  // namespace whomap
