// SPDX-License-Identifier: Apache-2.0
// Reads a trace file, streaming: memory does not grow with the number of events.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/trace/records.h"

namespace whomap {

struct TraceVisitor {
  std::function<void(const TraceHeader&)> header;
  std::function<void(Stack)> stack;       ///< `symbols` records come here too: the later one replaces
  std::function<void(const TraceEvent&)> event;
  std::function<void(Snapshot)> snapshot;
  std::function<void(const LostRecord&)> lost;
  std::function<void(const std::string&)> note;
  std::function<void(const TraceEnd&)> end;
  std::function<void(const nlohmann::ordered_json&)> unknown;
};

struct TraceReadSummary {
  bool cut = false;                  ///< no `end` record: the writer was killed or is still writing
  std::uint64_t records = 0;
  std::uint64_t damaged_lines = 0;
  std::vector<std::uint64_t> damaged_line_numbers;  ///< the first 20
};

/// Errors: input_unreadable; input_kind (not a whomap trace, saying what it looks like; a newer version);
/// input_damaged (the header line is not whole).
Result<TraceReadSummary> read_trace(const std::string& path, const TraceVisitor& visitor);

}  // namespace whomap
