// SPDX-License-Identifier: Apache-2.0
#include "core/trace/record_json.h"

#include <limits>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/trace/reader.h"

namespace whomap {
namespace {

template <class Number>
std::optional<Number> number_up_to(const nlohmann::json& json, const char* name) {
  const auto value = json_unsigned(json, name);
  if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) return std::nullopt;
  return static_cast<Number>(*value);
}

std::optional<Frame> frame_from_json(const nlohmann::json& json) {
  const auto offset = json_hex(json, "offset");
  if (!offset) return std::nullopt;
  Frame frame;
  frame.offset = *offset;
  frame.module = json_string(json, "module").value_or("");
  frame.build_id = json_string(json, "build_id").value_or("");
  frame.function = json_string(json, "function");
  frame.file = json_string(json, "file");
  frame.line = number_up_to<std::uint32_t>(json, "line");
  frame.inlined = json_bool(json, "inlined").value_or(false);
  frame.guessed = json_bool(json, "guessed").value_or(false);
  frame.exact = json_bool(json, "exact").value_or(false);
  frame.run_time = json_bool(json, "run_time").value_or(false);
  return frame;
}

}  // namespace

nlohmann::ordered_json header_to_json(const TraceHeader& header) {
  return {{"format", "whomap-trace"},
          {"version", trace_version},
          {"tool_version", json_text(header.tool_version)},
          {"engine", json_text(header.engine)},
          {"clock", json_text(header.clock)},
          {"start_ns", header.start_ns},
          {"target",
           {{"pid", header.target.pid},
            {"start_time", header.target.start_time},
            {"exe", json_text(header.target.exe)},
            {"comm", json_text(header.target.comm)}}},
          {"plan", to_json(header.plan)}};
}

Result<TraceHeader> header_from_json(const nlohmann::json& json, const std::string& name) {
  const auto damaged = [&](std::string_view what) {
    return fail(ErrorCode::input_damaged, fmt::format("{}: the header of the trace {}", name, what),
                "trace again, or restore the file from where it was copied");
  };
  const auto format = json_string(json, "format");
  if (!format || *format != "whomap-trace")
    return fail(ErrorCode::input_kind, fmt::format("{} is not a whomap trace", name));
  const auto version = json_unsigned(json, "version");
  if (!version || *version == 0) return damaged("has no version");
  if (*version > trace_version)
    return fail(ErrorCode::input_kind,
                fmt::format("{} is a whomap trace of version {}, and this whomap reads up to version {}",
                            name, *version, trace_version),
                "read it with the whomap that wrote it, or a newer one");
  const nlohmann::json* const target = json_member(json, "target");
  if (target == nullptr) return damaged("does not name the target");
  TraceHeader header;
  const auto pid = number_up_to<pid_t>(*target, "pid");
  const auto start_time = json_unsigned(*target, "start_time");
  if (!pid || !start_time) return damaged("does not say which process was traced");
  header.target = {*pid, *start_time, json_string(*target, "exe").value_or(""),
                   json_string(*target, "comm").value_or("")};
  header.engine = json_string(json, "engine").value_or("");
  header.tool_version = json_string(json, "tool_version").value_or("");
  header.clock = json_string(json, "clock").value_or(std::string(monotonic_clock));
  header.start_ns = json_unsigned(json, "start_ns").value_or(0);
  if (const nlohmann::json* const plan = json_member(json, "plan"); plan != nullptr && !plan->is_null()) {
    auto read = plan_from_json(*plan);
    if (!read) return damaged(fmt::format("holds a plan that cannot be read: {}", to_line(read.error())));
    header.plan = std::move(*read);
  }
  return header;
}

nlohmann::ordered_json frames_to_json(const std::vector<Frame>& frames) {
  auto list = nlohmann::ordered_json::array();
  for (const Frame& frame : frames) {
    nlohmann::ordered_json json;
    if (!frame.module.empty()) json["module"] = json_text(frame.module);
    if (!frame.build_id.empty()) json["build_id"] = json_text(frame.build_id);
    json["offset"] = hex_string(frame.offset);
    if (frame.function) json["function"] = json_text(*frame.function);
    if (frame.file) json["file"] = json_text(*frame.file);
    if (frame.line) json["line"] = *frame.line;
    if (frame.inlined) json["inlined"] = true;
    if (frame.guessed) json["guessed"] = true;
    if (frame.exact) json["exact"] = true;
    if (frame.run_time) json["run_time"] = true;
    list.push_back(std::move(json));
  }
  return list;
}

nlohmann::ordered_json stack_to_json(const Stack& stack, bool symbols) {
  nlohmann::ordered_json json{{"type", symbols ? "symbols" : "stack"}, {symbols ? "stack" : "id", stack.id}};
  json["frames"] = frames_to_json(stack.frames);
  if (stack.truncated) json["truncated"] = json_text(*stack.truncated);
  return json;
}

std::optional<Stack> stack_from_json(const nlohmann::json& json) {
  auto id = number_up_to<std::uint32_t>(json, "id");
  if (!id) id = number_up_to<std::uint32_t>(json, "stack");
  const nlohmann::json* const frames = json_member(json, "frames");
  if (!id || frames == nullptr || !frames->is_array()) return std::nullopt;
  Stack stack;
  stack.id = *id;
  for (const nlohmann::json& each : *frames) {
    auto frame = frame_from_json(each);
    if (!frame) return std::nullopt;
    stack.frames.push_back(std::move(*frame));
  }
  stack.truncated = json_string(json, "truncated");
  return stack;
}

nlohmann::ordered_json lost_to_json(const LostRecord& lost) {
  return {{"type", "lost"}, {"count", lost.count}, {"reason", json_text(lost.reason)}};
}

std::optional<LostRecord> lost_from_json(const nlohmann::json& json) {
  const auto count = json_unsigned(json, "count");
  if (!count) return std::nullopt;
  return LostRecord{*count, json_string(json, "reason").value_or("")};
}

nlohmann::ordered_json end_to_json(const TraceEnd& end) {
  return {{"type", "end"},
          {"reason", json_text(end.reason)},
          {"end_ns", end.end_ns},
          {"hits", end.hits},
          {"events", end.events},
          {"failed_calls", end.failed_calls},
          {"lost", end.lost},
          {"mispaired", end.mispaired},
          {"left_out", end.left_out},
          {"threads", end.threads},
          {"stopped_ms", optional_json(end.stopped_ms)},
          {"longest_stop_ms", optional_json(end.longest_stop_ms)},
          {"predicted_slowdown", optional_json(end.predicted_slowdown)}};
}

std::optional<TraceEnd> end_from_json(const nlohmann::json& json) {
  const auto reason = json_string(json, "reason");
  const auto end_ns = json_unsigned(json, "end_ns");
  if (!reason || !end_ns) return std::nullopt;
  TraceEnd end;
  end.reason = *reason;
  end.end_ns = *end_ns;
  end.hits = json_unsigned(json, "hits").value_or(0);
  end.events = json_unsigned(json, "events").value_or(0);
  end.failed_calls = json_unsigned(json, "failed_calls").value_or(0);
  end.lost = json_unsigned(json, "lost").value_or(0);
  end.mispaired = json_unsigned(json, "mispaired").value_or(0);
  end.left_out = json_unsigned(json, "left_out").value_or(0);
  end.threads = json_unsigned(json, "threads").value_or(0);
  end.stopped_ms = json_number(json, "stopped_ms");
  end.longest_stop_ms = json_number(json, "longest_stop_ms");
  end.predicted_slowdown = json_number(json, "predicted_slowdown");
  return end;
}

}  // namespace whomap
