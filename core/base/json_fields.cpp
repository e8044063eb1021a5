// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"

namespace whomap {
namespace {

bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > json_depth_limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

template <class Json>
Json parse(std::string_view text) {
  if (too_deep(text)) return Json(nlohmann::json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

/// Numbers that int64 cannot hold are out of range, not wrapped.
std::optional<std::int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
  }
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  return parse<nlohmann::json>(text);
}
nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return parse<nlohmann::ordered_json>(text);
}

const nlohmann::json* json_member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::optional<std::uint64_t> json_unsigned(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_number_unsigned()) return std::nullopt;
  return *member->get_ptr<const nlohmann::json::number_unsigned_t*>();
}

std::optional<double> json_number(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_number()) return std::nullopt;
  return member->get<double>();
}

std::optional<bool> json_bool(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_boolean()) return std::nullopt;
  return member->get<bool>();
}

std::optional<std::string> json_string(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_string()) return std::nullopt;
  return *member->get_ptr<const std::string*>();
}

std::optional<std::uint64_t> json_hex(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const member = json_member(object, name);
  if (member == nullptr || !member->is_string()) return std::nullopt;
  return parse_hex(*member->get_ptr<const std::string*>());
}

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.size() < 3 || text.size() > 18 || text[0] != '0' || text[1] != 'x') return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data() + 2, end, value, 16);
  if (problem != std::errc{} || rest != end) return std::nullopt;
  return value;
}

std::string hex_string(std::uint64_t value) {
  return fmt::format("{:#x}", value);
}

std::string json_text(std::string_view text) {
  // printable() knows UTF-8; what it changes besides invalid bytes are control characters, which stay here.
  std::string out;
  std::size_t done = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool control = i < text.size() && (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7F);
    if (i < text.size() && !control) continue;
    out += printable(text.substr(done, i - done));
    if (control) out += text[i];
    done = i + 1;
  }
  return out;
}

std::string dump_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    problem_ = fmt::format("{} is not an object", where_.empty() ? "the file" : where_);
}

void JsonFields::wrong(const char* name, const std::string& needed) {
  if (problem_.empty())
    problem_ = fmt::format("{}{}{} is not {}", where_, where_.empty() ? "" : ".", name, needed);
}

const nlohmann::json* JsonFields::find(const char* name, const char* needed) {
  if (!problem_.empty()) return nullptr;
  const auto found = object_.find(name);
  if (found == object_.end()) {
    problem_ =
        fmt::format("{}{}{} is missing, {} is needed", where_, where_.empty() ? "" : ".", name, needed);
    return nullptr;
  }
  return &*found;
}

std::string JsonFields::text(const char* name) {
  const nlohmann::json* const value = find(name, "a string");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  wrong(name, "a string");
  return {};
}

bool JsonFields::truth(const char* name) {
  const nlohmann::json* const value = find(name, "true or false");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  wrong(name, "true or false");
  return false;
}

std::int64_t JsonFields::integer(const char* name) {
  const nlohmann::json* const value = find(name, "an integer");
  if (value == nullptr) return 0;
  if (const auto number = as_integer(*value)) return *number;
  wrong(name, "a 64-bit integer");
  return 0;
}

std::uint64_t JsonFields::unsigned_integer(const char* name, std::uint64_t largest) {
  const nlohmann::json* const value = find(name, "a non-negative integer");
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() <= largest)
    return value->get<std::uint64_t>();
  // Objects built in memory hold literals as signed numbers.
  if (const auto number = as_integer(*value);
      number && *number >= 0 && static_cast<std::uint64_t>(*number) <= largest)
    return static_cast<std::uint64_t>(*number);
  wrong(name, fmt::format("an integer from 0 to {}", largest));
  return 0;
}

std::uint64_t JsonFields::address(const char* name) {
  const std::string written = text(name);
  if (!problem_.empty()) return 0;
  if (const auto number = parse_hex(written)) return *number;
  wrong(name, "an address like \"0x7f00\"");
  return 0;
}

std::optional<std::int64_t> JsonFields::integer_or_null(const char* name) {
  const nlohmann::json* const value = find(name, "an integer or null");
  if (value == nullptr || value->is_null()) return std::nullopt;
  return integer(name);
}

std::vector<std::int64_t> JsonFields::integers(const char* name) {
  std::vector<std::int64_t> numbers;
  const nlohmann::json* const list = array(name);
  if (list == nullptr) return numbers;
  for (const nlohmann::json& each : *list) {
    const auto number = as_integer(each);
    if (!number) {
      wrong(name, "a list of integers");
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> JsonFields::texts(const char* name) {
  std::vector<std::string> result;
  const nlohmann::json* const list = array(name);
  if (list == nullptr) return result;
  for (const nlohmann::json& each : *list) {
    if (!each.is_string()) {
      wrong(name, "a list of strings");
      return {};
    }
    result.push_back(each.get<std::string>());
  }
  return result;
}

std::vector<std::uint8_t> JsonFields::hex_bytes(const char* name) {
  const std::string digits = text(name);
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    std::uint8_t byte = 0;
    const char* const begin = digits.data() + i;
    const auto [rest, error] =
        std::from_chars(begin, begin + std::min<std::size_t>(2, digits.size() - i), byte, 16);
    if (error != std::errc{} || rest != begin + 2) {
      wrong(name, "pairs of hexadecimal digits");
      return {};
    }
    bytes.push_back(byte);
  }
  return bytes;
}

const nlohmann::json* JsonFields::object_or_null(const char* name) {
  const nlohmann::json* const value = find(name, "an object or null");
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->is_object()) return value;
  wrong(name, "an object or null");
  return nullptr;
}

const nlohmann::json* JsonFields::array(const char* name) {
  const nlohmann::json* const value = find(name, "a list");
  if (value == nullptr) return nullptr;
  if (value->is_array()) return value;
  wrong(name, "a list");
  return nullptr;
}

}  // namespace whomap
