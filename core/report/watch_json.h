// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "core/report/watch_text.h"

namespace whomap {

/// How something grows; rates are bytes per minute.
nlohmann::ordered_json shape_json(const GrowthShape& shape);

/// The record of type "end" of a watch file: what the watch found, with every row.
nlohmann::ordered_json watch_end_record(const WatchView& view, const WatchEnding& ending);

}  // namespace whomap
