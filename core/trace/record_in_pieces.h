// SPDX-License-Identifier: Apache-2.0
// One line of JSON Lines whose arrays may be too long to be in memory as JSON: as one value, a snapshot of
// 100,000 regions took 280 MB.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/files.h"
#include "core/base/json_fields.h"

namespace whomap {

/// Arrays come after all other members, their items one by one.
class RecordInPieces {
 public:
  RecordInPieces(OutputFile& file, const nlohmann::ordered_json& head) : file_(file) {
    std::string text = dump_line(head);
    text.pop_back();
    keep(text);
  }
  void array(std::string_view name) {
    keep(fmt::format("{},\"{}\":[", in_array_ ? "]" : "", name));
    in_array_ = first_ = true;
  }
  void item(const nlohmann::ordered_json& value) {
    keep((first_ ? "" : ",") + dump_line(value));
    first_ = false;
  }
  /// The end of the line. The first error of writing; nothing was written after it.
  Result<void> finish() {
    keep(in_array_ ? "]}\n" : "}\n");
    return written_;
  }

 private:
  void keep(std::string_view text) {
    if (written_) written_ = file_.write(text);
  }

  OutputFile& file_;
  Result<void> written_;
  bool in_array_ = false, first_ = true;
};

}  // namespace whomap
