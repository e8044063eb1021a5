// SPDX-License-Identifier: Apache-2.0
#include "core/trace/reader.h"

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/trace/event_line.h"
#include "core/trace/input_kind.h"
#include "core/trace/line_source.h"
#include "core/trace/record_json.h"

namespace whomap {
namespace {

/// Hands the record on. False when it is damaged.
template <class Record>
bool hand_on(const std::function<void(Record)>& callback, const std::optional<std::decay_t<Record>>& record) {
  if (record && callback) callback(*record);
  return record.has_value();
}

class Reader {
 public:
  Reader(LineSource source, std::string name, const TraceVisitor& visitor)
      : source_(std::move(source)), name_(std::move(name)), visitor_(visitor) {}

  Result<TraceReadSummary> read() {
    if (auto header = read_header(); !header) return tl::make_unexpected(header.error());
    bool ended = false;
    for (;;) {
      auto line = source_.next();
      if (!line) return tl::make_unexpected(line.error());
      if (!*line) break;
      const LineSource::Line& record = **line;
      if (record.text.empty() && !record.too_long) continue;
      if (record.whole && visitor_.line && !record.too_long) visitor_.line(record.text);
      if (begins_trace(record.text))
        return fail(ErrorCode::input_damaged,
                    fmt::format("{} holds another trace from line {} on", name_, source_.line_number()),
                    "give each trace in a file of its own");
      if (!record.too_long && read_record(record.text, ended)) {
        ++summary_.records;
      } else if (!record.whole) {
        summary_.cut_line = true;
      } else {
        ++summary_.damaged_lines;
        if (summary_.damaged_line_numbers.size() < 20)
          summary_.damaged_line_numbers.push_back(source_.line_number());
      }
    }
    summary_.cut = !ended;
    return std::move(summary_);
  }

 private:
  /// The first line of a trace, in the middle of one.
  static bool begins_trace(std::string_view text) {
    return text.starts_with("{\"format\":") && json_string(parse_json(text), "format") == "whomap-trace";
  }

  Result<void> read_header() {
    const auto start = source_.peek();
    if (!start) return tl::make_unexpected(start.error());
    const InputKind kind = input_kind(*start);
    if (kind != InputKind::whomap_trace && kind != InputKind::json) {
      return fail(ErrorCode::input_kind,
                  fmt::format("{} is not a whomap trace, it looks like {}", name_, describe(kind)),
                  "give the file that whomap trace wrote");
    }
    auto line = source_.next();
    if (!line) return tl::make_unexpected(line.error());
    const std::string_view text = *line ? (*line)->text : std::string_view{};
    const nlohmann::json json = parse_json(text);
    if (json.is_discarded()) {
      if (kind == InputKind::json)
        return fail(ErrorCode::input_kind, fmt::format("{} is not a whomap trace", name_),
                    "give the file that whomap trace wrote");
      return fail(ErrorCode::input_damaged, fmt::format("the first line of {} is not whole", name_),
                  "trace again, or restore the file from where it was copied");
    }
    auto header = header_from_json(json, name_);
    if (!header) return tl::make_unexpected(header.error());
    if (visitor_.line) visitor_.line(text);
    if (visitor_.header) visitor_.header(*header);
    return {};
  }

  bool read_record(std::string_view text, bool& ended) {
    if (text.starts_with(event_line_start)) {
      if (!visitor_.event) return true;
      if (const auto event = parse_event_line(text)) {
        visitor_.event(*event);
        return true;
      }
    }
    const nlohmann::json json = parse_json(text);
    const auto type = json_string(json, "type");
    if (!type) return false;
    if (*type == "event") return hand_on<const TraceEvent&>(visitor_.event, event_from_json(json));
    if (*type == "stack" || *type == "symbols") return hand_on<Stack>(visitor_.stack, stack_from_json(json));
    if (*type == "lost") return hand_on<const LostRecord&>(visitor_.lost, lost_from_json(json));
    if (*type == "note") return hand_on<const std::string&>(visitor_.note, json_string(json, "text"));
    if (*type == "snapshot") {
      if (!visitor_.snapshot) return true;
      auto snapshot = snapshot_from_json(json);
      if (snapshot) visitor_.snapshot(std::move(*snapshot));
      return snapshot.has_value();
    }
    if (*type == "end") {
      const auto end = end_from_json(json);
      ended = ended || end.has_value();
      return hand_on<const TraceEnd&>(visitor_.end, end);
    }
    if (visitor_.unknown) visitor_.unknown(parse_ordered_json(text));
    return true;
  }

  LineSource source_;
  std::string name_;
  const TraceVisitor& visitor_;
  TraceReadSummary summary_;
};

}  // namespace

Result<TraceReadSummary> read_trace(const std::string& path, const TraceVisitor& visitor) {
  auto source = LineSource::open(path);
  if (!source) return tl::make_unexpected(source.error());
  return Reader(std::move(*source), path, visitor).read();
}

Result<TraceReadSummary> read_trace_text(std::string_view text, const std::string& name,
                                         const TraceVisitor& visitor) {
  return Reader(LineSource::over(text), name, visitor).read();
}

}  // namespace whomap
