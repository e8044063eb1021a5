// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_fields.h"

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

}  // namespace whomap
