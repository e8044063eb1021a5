// SPDX-License-Identifier: Apache-2.0
// Reading JSON that somebody else may have damaged, in two ways, and none of them throws: every getter says
// "not there or of another type" with nullopt; JsonFields wants all it asks for, and names the first that is
// wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Fields of one object. After the first field that is missing or of the wrong type, `problem` names it and
/// every later read gives an empty value.
class JsonFields {
 public:
  /// `where` names the object in messages: "sites[3]".
  JsonFields(const nlohmann::json& object, std::string where);

  std::string text(const char* name);
  bool truth(const char* name);
  std::int64_t integer(const char* name);
  std::uint64_t unsigned_integer(const char* name, std::uint64_t largest = UINT64_MAX);
  /// "0x7f12..." as a number.
  std::uint64_t address(const char* name);
  std::optional<std::int64_t> integer_or_null(const char* name);
  std::vector<std::int64_t> integers(const char* name);
  std::vector<std::string> texts(const char* name);
  std::vector<std::uint8_t> hex_bytes(const char* name);
  /// nullptr when the field is null; a problem when it is missing or no object.
  const nlohmann::json* object_or_null(const char* name);
  const nlohmann::json* array(const char* name);

  void wrong(const char* name, const std::string& needed);
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  const nlohmann::json* find(const char* name, const char* needed);

  const nlohmann::json& object_;
  std::string where_;
  std::string problem_;
};

/// null for nullopt.
template <class T>
nlohmann::ordered_json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace whomap
