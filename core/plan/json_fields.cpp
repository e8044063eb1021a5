// SPDX-License-Identifier: Apache-2.0
#include "core/plan/json_fields.h"

#include <charconv>

#include <fmt/format.h>

namespace whomap {
namespace {

using nlohmann::json;

/// Numbers that int64 cannot hold are out of range, not wrapped.
std::optional<std::int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
  }
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

}  // namespace

JsonFields::JsonFields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    problem_ = fmt::format("{} is not an object", where_.empty() ? "the file" : where_);
}

void JsonFields::wrong(const char* name, const std::string& needed) {
  if (problem_.empty())
    problem_ = fmt::format("{}{}{} is not {}", where_, where_.empty() ? "" : ".", name, needed);
}

const json* JsonFields::find(const char* name, const char* needed) {
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
  const json* const value = find(name, "a string");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  wrong(name, "a string");
  return {};
}

bool JsonFields::truth(const char* name) {
  const json* const value = find(name, "true or false");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  wrong(name, "true or false");
  return false;
}

std::int64_t JsonFields::integer(const char* name) {
  const json* const value = find(name, "an integer");
  if (value == nullptr) return 0;
  if (const auto number = as_integer(*value)) return *number;
  wrong(name, "a 64-bit integer");
  return 0;
}

std::uint64_t JsonFields::unsigned_integer(const char* name, std::uint64_t largest) {
  const json* const value = find(name, "a non-negative integer");
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
  std::uint64_t number = 0;
  const char* const end = written.data() + written.size();
  if (written.starts_with("0x") && written.size() > 2) {
    const auto [rest, error] = std::from_chars(written.data() + 2, end, number, 16);
    if (error == std::errc{} && rest == end) return number;
  }
  wrong(name, "an address like \"0x7f00\"");
  return 0;
}

std::optional<std::int64_t> JsonFields::integer_or_null(const char* name) {
  const json* const value = find(name, "an integer or null");
  if (value == nullptr || value->is_null()) return std::nullopt;
  return integer(name);
}

std::vector<std::int64_t> JsonFields::integers(const char* name) {
  std::vector<std::int64_t> numbers;
  const json* const list = array(name);
  if (list == nullptr) return numbers;
  for (const json& each : *list) {
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
  const json* const list = array(name);
  if (list == nullptr) return result;
  for (const json& each : *list) {
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

const json* JsonFields::object_or_null(const char* name) {
  const json* const value = find(name, "an object or null");
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->is_object()) return value;
  wrong(name, "an object or null");
  return nullptr;
}

const json* JsonFields::array(const char* name) {
  const json* const value = find(name, "a list");
  if (value == nullptr) return nullptr;
  if (value->is_array()) return value;
  wrong(name, "a list");
  return nullptr;
}

}  // namespace whomap
