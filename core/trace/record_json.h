// SPDX-License-Identifier: Apache-2.0
// The records of a trace as JSON; core/README.md documents the fields.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/trace/records.h"

namespace whomap {

nlohmann::ordered_json header_to_json(const TraceHeader& header);
/// Errors: input_kind (another format, a newer version), input_damaged. `name` is the file's, for the
/// message.
Result<TraceHeader> header_from_json(const nlohmann::json& json, const std::string& name);

/// Members that have nothing to say (no name, not inlined) are left out; see core/report for the full form.
nlohmann::ordered_json frames_to_json(const std::vector<Frame>& frames);

/// Record types "stack" and "symbols".
nlohmann::ordered_json stack_to_json(const Stack& stack, bool symbols);
std::optional<Stack> stack_from_json(const nlohmann::json& json);

nlohmann::ordered_json lost_to_json(const LostRecord& lost);
std::optional<LostRecord> lost_from_json(const nlohmann::json& json);

nlohmann::ordered_json end_to_json(const TraceEnd& end);
std::optional<TraceEnd> end_from_json(const nlohmann::json& json);

}  // namespace whomap
