// SPDX-License-Identifier: Apache-2.0
// What a watch has found so far, in single lines: the answer, the facts beside it, a line for a log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/regions/sampler.h"
#include "core/regions/watch_view.h"

namespace whomap {

/// "RssAnon +412 MiB/min, 96 % of the growth in 2 regions": the answer in one line.
std::string watch_headline(const WatchView& view);

struct WatchFacts {
  pid_t pid = 0;
  std::string comm;
  std::optional<std::uint64_t> mapping_limit;
  double cpu_seconds = 0;     ///< that the watch has taken
  double interval = 1;        ///< seconds, as it was asked for
  double smaps_interval = 1;  ///< seconds, as the cost has it
};

/// "pid 9981 raw_mmap, 1 thread, 29 of 65,530 mappings, 34.0 s, cost 0.2 % of a CPU": what does not fit into
/// `width` columns is left out, the least important first; the cost is the last to go.
std::string watch_facts(const WatchView& view, const WatchFacts& facts, std::size_t width);

/// "91,204 of 65,530 mappings" with a warning when few are left (vm.max_map_count); nullopt: limit unknown.
std::string mappings_text(std::uint64_t mappings, std::optional<std::uint64_t> limit);
bool mappings_run_out(std::uint64_t mappings, std::optional<std::uint64_t> limit);

/// "0.31 s of CPU; read status 60 times, maps 3 times in 0.01 s (longest 4.0 ms), ...".
std::string cost_text(const WatchCost& cost);

/// One line for a log: time, resident sizes and what changed most; without its newline.
std::string watch_line(const WatchView& view, const std::string& note);

/// The class of a row, and what tells it from others of its class, in about `width` columns.
std::string row_label(const WatchRow& row, std::size_t width);

}  // namespace whomap
