// SPDX-License-Identifier: Apache-2.0
// What a watch has found, as lines for a terminal, a log, and its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/process/target.h"
#include "core/regions/sampler.h"
#include "core/regions/watch_view.h"

namespace whomap {

struct WatchTextOptions {
  std::size_t width = 80;  ///< columns; any number, also 20
  bool color = false;
  bool unicode = false;  ///< block characters in the sparkline; else ASCII
};

struct WatchLine {
  enum class Style { plain, head, growing };
  std::string text;
  Style style = Style::plain;
};

/// "RssAnon +412 MiB/min (95 %: 400 to 424 MiB), 96 % of the growth in 2 regions": the answer in one line.
std::string watch_headline(const WatchView& view);

/// The head of the table, then a line per row, at most `most`; none is wider than the width, none ends in a
/// newline.
std::vector<WatchLine> watch_table(const WatchView& view, const WatchTextOptions& options, std::size_t most);

/// "91,204 of 65,530 mappings" with a warning when few are left (vm.max_map_count); nullopt: limit unknown.
std::string mappings_text(std::uint64_t mappings, std::optional<std::uint64_t> limit);
bool mappings_run_out(std::uint64_t mappings, std::optional<std::uint64_t> limit);

/// "0.31 s of CPU; status read 60 times, maps 3, smaps 57 in 0.21 s (longest 6 ms)".
std::string cost_text(const WatchCost& cost);

/// One line for a log: time, resident sizes and what changed most; without its newline.
std::string watch_line(const WatchView& view, const std::string& note);

struct WatchEnding {
  TargetIdentity target;
  std::string reason;  ///< as in the watch file: time, growth, quit, interrupted, target-exited, target-exec
  WatchCost cost;
  std::optional<std::uint64_t> mapping_limit;
  std::vector<std::string> notes;
};

/// The whole answer at the end of a watch.
std::string watch_summary(const WatchView& view, const WatchEnding& ending, const WatchTextOptions& options);

/// `values` as characters, lowest to highest; flat when they do not differ.
std::string sparkline(const std::vector<double>& values, bool unicode);

/// How a region grew, in words: "mmap, merged by the kernel below it"; empty when nothing is known.
std::string changes_text(const WatchRow& row);

}  // namespace whomap
