// SPDX-License-Identifier: Apache-2.0
#include "core/report/watch_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/match/shape_text.h"
#include "core/report/layout.h"

namespace whomap {
namespace {

std::string bytes_of(double bytes) {
  return bytes_text(whole_bytes(std::abs(bytes)));
}

constexpr double per_minute = 60;

std::string age_text(std::uint64_t first_seen_ns, double seconds, std::uint64_t last_ns) {
  const double age = static_cast<double>(last_ns - std::min(first_seen_ns, last_ns)) / 1e9;
  if (age >= seconds - 0.5) return "start";
  if (age < 100) return fmt::format("{:.0f}s", age);
  if (age < 6000) return fmt::format("{:.0f}m", age / 60);
  return fmt::format("{:.0f}h", age / 3600);
}

/// Where there is no trend, or not yet, the average of the time, marked.
std::string rate_text(const GrowthShape& shape) {
  if (shape.seconds <= 0) return "-";
  const bool no_trend = shape.pattern == GrowthPattern::unknown || shape.pattern == GrowthPattern::unclear;
  const double rate = (no_trend ? shape.change / shape.seconds : shape.present_rate()) * per_minute;
  if (std::abs(shape.change) < least_shape_change || std::abs(rate) < 1) return "0 B";
  return (no_trend ? "~" : "") + signed_bytes_of(rate);
}

struct Column {
  std::string_view head;
  std::size_t width;
  bool shown = true;
};

/// Which columns there is room for: the first ones are the last to go.
struct TableLayout {
  Column rate{"per min", 10}, grown{"grown", 9}, resident{"resident", 9}, size{"size", 9}, seen{"seen", 5},
      recent{"history", 8}, trend{"trend", 8};
  std::size_t label = 0;

  explicit TableLayout(std::size_t width) {
    constexpr std::size_t least_label = 12;
    for (Column* const column : {&trend, &seen, &recent, &size, &grown, &resident}) {
      label = used() < width ? width - used() : 0;
      const std::size_t wanted = column == &trend ? 22 : least_label;
      if (label >= wanted) break;
      column->shown = false;
    }
    label = used() < width ? width - used() : 0;
  }
  [[nodiscard]] std::size_t used() const {
    std::size_t sum = 0;
    for (const Column* const column : {&rate, &grown, &resident, &size, &seen, &recent, &trend})
      if (column->shown) sum += column->width + 1;
    return sum;
  }
};

std::string right(std::string_view text, std::size_t width) {
  const std::size_t wide = columns(text);
  return wide >= width ? std::string(text) : std::string(width - wide, ' ') + std::string(text);
}

std::string cut(std::string text, std::size_t width) {
  return columns(text) <= width ? text : fit(text, width);
}

std::string trimmed_right(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

class Summary {
 public:
  Summary(const WatchView& view, const WatchEnding& ending, const WatchTextOptions& options)
      : view_(view),
        ending_(ending),
        options_(options),
        paint_(options.color),
        width_(std::max<std::size_t>(options.width, 40)) {}

  std::string make() {
    out_ += wrap(watch_headline(view_) + ".", width_, 0) + "\n";
    const TargetIdentity& target = ending_.target;
    fact("target",
         fmt::format("pid {}, {}{}{}", target.pid,
                     target.exe.empty() ? target.comm : fmt::format("{} ({})", target.comm, target.exe),
                     view_.threads ? ", " + count_text(*view_.threads, "thread") : "",
                     view_.first_threads && view_.first_threads != view_.threads
                         ? fmt::format(" ({} at first)", *view_.first_threads)
                         : ""));
    fact("watched", fmt::format("{}, ended {}", seconds_text(view_.seconds), ended()));
    fact("memory", memory());
    fact("maps", mappings_text(view_.regions, ending_.mapping_limit));
    fact("cost", cost_text(ending_.cost));
    table();
    details();
    for (const std::string& note : ending_.notes) fact("note", note);
    return std::move(out_);
  }

 private:
  void fact(std::string_view name, const std::string& text) {
    out_ += paint_.dim(fit(name, 8)) + wrap(printable(text), width_, 8, 8);
  }

  [[nodiscard]] std::string ended() const {
    const std::string& reason = ending_.reason;
    if (reason == "time") return "after the given time";
    if (reason == "growth") return "when it had grown by as much as was given";
    if (reason == "quit") return "by q";
    if (reason == "interrupted") return "by an interrupt";
    if (reason == "target-exited") return "early: the process ended";
    if (reason == "target-exec") return "early: the process exec'd another program";
    return reason;
  }

  [[nodiscard]] std::string memory() const {
    const WatchTotals& totals = view_.totals;
    std::string text =
        fmt::format("RssAnon {} ({})", bytes_of(totals.rss_anon_bytes), shape_text(totals.rss_anon));
    const auto add = [&](std::string_view name, const GrowthShape& shape) {
      if (std::abs(shape.change) >= least_shape_change)
        text += fmt::format("; {} {}", name, signed_bytes_of(shape.change));
    };
    add("RssFile", totals.rss_file);
    add("RssShmem", totals.rss_shmem);
    add("swap", totals.swap);
    add("page tables", totals.page_tables);
    add("mapped", totals.mapped);
    return text;
  }

  void table() {
    constexpr std::size_t most = 12;
    out_ += '\n';
    WatchTextOptions options = options_;
    options.width = width_;
    for (const WatchLine& line : watch_table(view_, options, most)) out_ += painted(line) + "\n";
    if (view_.rows.size() > most)
      out_ += fmt::format("and {} (-o FILE and --format json have all)\n",
                          count_text(view_.rows.size() - most, "more row"));
  }

  [[nodiscard]] std::string painted(const WatchLine& line) const {
    switch (line.style) {
      case WatchLine::Style::head: return paint_.dim(line.text);
      case WatchLine::Style::growing: return paint_.red(line.text);
      case WatchLine::Style::plain: break;
    }
    return line.text;
  }

  /// What is known of the rows that grew most.
  void details() {
    constexpr std::size_t most = 4;
    std::size_t shown = 0;
    for (const WatchRow& row : view_.rows) {
      if (shown == most || row.shape.change < least_shape_change) continue;
      ++shown;
      std::string text = fmt::format("{}: {} {}", cut(row_label(row, 60), 60),
                                     row.shape_is_of_size ? "addresses" : "resident", shape_text(row.shape));
      if (const std::string how = changes_text(row); !how.empty()) text += "; " + how;
      text += "; " + row.evidence;
      for (const std::string& trait : row.traits) text += "; " + trait;
      if (shown == 1) out_ += '\n';
      out_ += wrap(printable(text), width_, 2);
    }
    out_ += '\n';
  }

  const WatchView& view_;
  const WatchEnding& ending_;
  const WatchTextOptions& options_;
  Paint paint_;
  std::size_t width_;
  std::string out_;
};

}  // namespace

std::string sparkline(const std::vector<double>& values, bool unicode) {
  static constexpr std::array<std::string_view, 8> blocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<std::string_view, 8> ascii{"_", ".", ":", "-", "=", "+", "*", "#"};
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::string line;
  for (const double value : values) {
    const double part = *high - *low >= least_shape_change ? (value - *low) / (*high - *low) : 0;
    const auto level = std::min<std::size_t>(7, static_cast<std::size_t>(part * 8));
    line += unicode ? blocks[level] : ascii[level];
  }
  return line;
}

std::vector<WatchLine> watch_table(const WatchView& view, const WatchTextOptions& options, std::size_t most) {
  const TableLayout layout(options.width);
  std::vector<WatchLine> lines;
  const auto line_of = [&](const std::array<std::string, 7>& cells, const std::string& label) {
    std::string line;
    std::size_t i = 0;
    for (const Column* const column : {&layout.rate, &layout.grown, &layout.resident, &layout.size,
                                       &layout.seen, &layout.recent, &layout.trend}) {
      const std::string& cell = cells[i++];
      if (!column->shown) continue;
      const bool text = column == &layout.recent || column == &layout.trend;
      line += (text ? fit(cell, column->width) : right(cell, column->width)) + " ";
    }
    return cut(trimmed_right(line + label), options.width);
  };
  lines.push_back({line_of({std::string(layout.rate.head), std::string(layout.grown.head),
                            std::string(layout.resident.head), std::string(layout.size.head),
                            std::string(layout.seen.head), std::string(layout.recent.head),
                            std::string(layout.trend.head)},
                           "class"),
                   WatchLine::Style::head});
  for (const WatchRow& row : view.rows) {
    if (lines.size() > most) break;
    const double grown = row.shape_is_of_size ? row.size_growth : row.resident_growth;
    const bool growing = row.shape.pattern == GrowthPattern::steady ||
                         row.shape.pattern == GrowthPattern::steps ||
                         row.shape.pattern == GrowthPattern::doubling;
    std::string line = line_of(
        {rate_text(row.shape), signed_bytes_of(grown), bytes_of(row.resident), bytes_text(row.size),
         age_text(row.first_seen_ns, view.seconds, view.last_ns), sparkline(row.recent, options.unicode),
         row.shape.pattern == GrowthPattern::unknown ? "" : std::string(to_string(row.shape.pattern))},
        cut(row_label(row, layout.label), layout.label));
    lines.push_back({std::move(line),
                     growing && !row.shape_is_of_size ? WatchLine::Style::growing : WatchLine::Style::plain});
  }
  return lines;
}

std::string changes_text(const WatchRow& row) {
  const auto has = [&](RegionChange change) { return (row.changes & change) != 0; };
  std::vector<std::string> parts;
  const bool by_break = row.kind == RegionKind::heap;
  if (has(RegionChange::grew_below))
    parts.emplace_back(row.kind == RegionKind::stack || row.kind == RegionKind::grows_down
                           ? "extended downwards by use"
                           : "mmap, merged by the kernel at its lower end");
  if (has(RegionChange::grew_above))
    parts.emplace_back(by_break ? "moved by brk" : "extended at its upper end (mmap and merged, or mremap)");
  if (has(RegionChange::moved)) parts.emplace_back("moved by mremap");
  if (has(RegionChange::merged)) parts.emplace_back("older regions merged into it");
  if (has(RegionChange::split)) parts.emplace_back("split");
  if (has(RegionChange::opened))
    parts.emplace_back("reserved addresses opened by mprotect");
  else if (has(RegionChange::reprotected))
    parts.emplace_back("permissions changed");
  if (has(RegionChange::replaced)) parts.emplace_back("mapped over what was there");
  if (has(RegionChange::shrank)) parts.emplace_back("partly unmapped");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string watch_summary(const WatchView& view, const WatchEnding& ending, const WatchTextOptions& options) {
  return Summary(view, ending, options).make();
}

}  // namespace whomap
