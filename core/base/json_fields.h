// SPDX-License-Identifier: Apache-2.0
// Reading JSON that somebody else may have damaged: every getter says "not there or of another type" with
// nullopt, and none of them throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace whomap {

/// Deepest nesting that is read. nlohmann's parser is iterative but its dump() is not; no format of ours
/// nests deeper than 6.
inline constexpr int json_depth_limit = 64;

/// Discarded (is_discarded()) when `text` is not JSON or nests too deeply.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);

/// The member, nullptr when `object` is no object or has none of that name.
const nlohmann::json* json_member(const nlohmann::json& object, const char* name);

std::optional<std::uint64_t> json_unsigned(const nlohmann::json& object, const char* name);
std::optional<double> json_number(const nlohmann::json& object, const char* name);
std::optional<bool> json_bool(const nlohmann::json& object, const char* name);
/// Copy of the string.
std::optional<std::string> json_string(const nlohmann::json& object, const char* name);
/// An address or a register: a string "0x" and 1 to 16 hex digits.
std::optional<std::uint64_t> json_hex(const nlohmann::json& object, const char* name);
std::optional<std::uint64_t> parse_hex(std::string_view text);
std::string hex_string(std::uint64_t value);

/// `text` as JSON may hold it: bytes that are not UTF-8 become \xNN. Control characters stay, JSON escapes
/// them.
std::string json_text(std::string_view text);
/// One line; bytes that are not UTF-8, which should not be there, become U+FFFD.
std::string dump_line(const nlohmann::ordered_json& value);

/// null for nullopt.
template <class T>
nlohmann::ordered_json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace whomap
