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
#include "core/report/watch_lines.h"

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

/// The head of the table, then a line per row, at most `most`; none is wider than the width, none ends in a
/// newline.
std::vector<WatchLine> watch_table(const WatchView& view, const WatchTextOptions& options, std::size_t most);

struct WatchEnding {
  TargetIdentity target;
  std::string reason;  ///< as in the watch file: time, growth, quit, interrupted, target-exited, target-exec
  WatchCost cost;
  std::optional<std::uint64_t> mapping_limit;
  std::vector<std::string> notes;
};

/// The whole answer at the end of a watch.
std::string watch_summary(const WatchView& view, const WatchEnding& ending, const WatchTextOptions& options);

/// `values` as characters, from the lowest of them to the highest: growth of a large region is seen as well
/// as that of a small one. Flat when they differ by less than least_shape_change.
std::string sparkline(const std::vector<double>& values, bool unicode);

/// How a region grew, in words: "mmap, merged by the kernel below it"; empty when nothing is known.
std::string changes_text(const WatchRow& row);

}  // namespace whomap
