// SPDX-License-Identifier: Apache-2.0
// The file format of speedscope (https://www.speedscope.app/file-format-schema.json): sampled profiles,
// weights in bytes.
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/base/version.h"
#include "core/report/report.h"

namespace whomap {
namespace {

using Json = nlohmann::ordered_json;

class Speedscope {
 public:
  explicit Speedscope(const Answer& answer) : answer_(answer) {}

  Json run(Weight weight) {
    Json profiles = Json::array({profile(Weight::growth, "growth"), profile(Weight::live, "live")});
    const std::string name =
        fmt::format("{} ({})", answer_.header.target.comm.empty() ? "whomap" : answer_.header.target.comm,
                    answer_.header.target.pid);
    return {{"$schema", "https://www.speedscope.app/file-format-schema.json"},
            {"exporter", fmt::format("whomap@{}", WHOMAP_VERSION)},
            {"name", json_text(name)},
            {"activeProfileIndex", weight == Weight::growth ? 0 : 1},
            {"shared", {{"frames", std::move(frames_)}}},
            {"profiles", std::move(profiles)}};
  }

 private:
  Json profile(Weight weight, std::string_view name) {
    Json samples = Json::array();
    Json weights = Json::array();
    std::uint64_t total = 0;
    for (const StackAnswer& row : answer_.stacks) {
      const std::uint64_t bytes = weight_of(row, weight);
      if (bytes == 0) continue;
      Json sample = Json::array();
      if (row.stack.truncated || row.stack.frames.empty()) sample.push_back(index_of(truncated_name, "", 0));
      for (auto frame = row.stack.frames.rbegin(); frame != row.stack.frames.rend(); ++frame)
        sample.push_back(
            index_of(viewer_name(*frame), frame->file.value_or(frame->module), frame->line.value_or(0)));
      samples.push_back(std::move(sample));
      weights.push_back(bytes);
      total += bytes;
    }
    return {{"type", "sampled"},
            {"name", name},
            {"unit", "bytes"},
            {"startValue", 0},
            {"endValue", total},
            {"samples", std::move(samples)},
            {"weights", std::move(weights)}};
  }

  std::size_t index_of(const std::string& name, const std::string& file, std::uint32_t line) {
    const auto [at, fresh] = indices_.try_emplace({name, file, line}, frames_.size());
    if (fresh) {
      Json frame{{"name", json_text(name)}};
      if (!file.empty()) frame["file"] = json_text(file);
      if (line != 0) frame["line"] = line;
      frames_.push_back(std::move(frame));
    }
    return at->second;
  }

  const Answer& answer_;
  Json frames_ = Json::array();
  std::map<std::tuple<std::string, std::string, std::uint32_t>, std::size_t> indices_;
};

}  // namespace

std::string to_speedscope(const Answer& answer, Weight weight) {
  return dump_line(Speedscope(answer).run(weight)) + "\n";
}

}  // namespace whomap
