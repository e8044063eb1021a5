// SPDX-License-Identifier: Apache-2.0
// Reading typed fields of a JSON object from a file that may be damaged: nothing here throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace whomap {

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

}  // namespace whomap
