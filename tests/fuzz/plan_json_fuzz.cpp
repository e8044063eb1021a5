// SPDX-License-Identifier: Apache-2.0
// A plan file may hold anything: reading it must not throw, and what was read must survive a round trip.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "core/plan/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = nlohmann::json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  const auto plan = whomap::plan_from_json(json);
  if (!plan) return 0;
  const std::string text = whomap::to_json(*plan).dump();
  const auto again = whomap::plan_from_json(nlohmann::json::parse(text));
  if (!again || whomap::to_json(*again).dump() != text) std::abort();
  return 0;
}
