// SPDX-License-Identifier: Apache-2.0
// Event records are nearly all of a trace, so they have a formatter and a parser of their own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/trace/records.h"

namespace whomap {

/// How an event line of ours begins; other JSON writers may put the members in another order.
inline constexpr std::string_view event_line_start = R"({"type":"event",)";

/// Appends the record and a newline.
void append_event_line(std::string& out, const TraceEvent& event);

/// Reads exactly the form that append_event_line() writes; nullopt for any other, which is then
/// for event_from_json() to judge.
std::optional<TraceEvent> parse_event_line(std::string_view line);

/// Any member order, unknown members ignored; nullopt when something needed is missing or of the wrong type.
std::optional<TraceEvent> event_from_json(const nlohmann::json& record);

}  // namespace whomap
