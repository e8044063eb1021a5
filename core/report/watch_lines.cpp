// SPDX-License-Identifier: Apache-2.0
#include "core/report/watch_lines.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/match/shape_text.h"
#include "core/report/layout.h"

namespace whomap {
namespace {

constexpr double per_minute = 60;

std::string bytes_of(double bytes) {
  return bytes_text(whole_bytes(std::abs(bytes)));
}

std::string regions_text(std::uint64_t count) {
  return count_text(count, "region");
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::string mapping_warning(std::uint64_t mappings, std::optional<std::uint64_t> limit) {
  return mappings_run_out(mappings, limit)
             ? "; at the limit mmap, munmap and mprotect fail with ENOMEM (sysctl vm.max_map_count)"
             : "";
}

}  // namespace

std::string row_label(const WatchRow& row, std::size_t width) {
  std::string label(to_string(row.kind));
  if (row.count > 1) label += fmt::format(" x{}", count_text(row.count));
  if (row.names > 1) label += fmt::format(" of {} names", count_text(row.names));
  const bool name_says_more = !row.name.empty() && row.name != "[heap]" && row.name != "[stack]";
  if (name_says_more) {
    std::string name = printable(row.name);
    label += ' ';
    if (columns(label) + columns(name) > width) name = base_name(name);
    label += name;
  } else if (row.range) {
    label += fmt::format(" {:x}", row.range->start);
  }
  return label;
}

std::string watch_headline(const WatchView& view) {
  const WatchTotals& totals = view.totals;
  const auto part = [](std::string_view name, const GrowthShape& shape) {
    std::string text = fmt::format("{} {}/min", name, signed_bytes_of(shape.rate() * per_minute));
    if (shape.pattern == GrowthPattern::unknown)
      text = fmt::format("{} {} so far", name, signed_bytes_of(shape.change));
    else if (shape.pattern == GrowthPattern::doubling || shape.pattern == GrowthPattern::steps)
      text += shape.pattern == GrowthPattern::doubling ? " in doubling steps" : " in steps";
    else if (shape.pattern == GrowthPattern::plateau)
      text = fmt::format("{} {}, flat for {}", name, signed_bytes_of(shape.change),
                         seconds_text(shape.quiet_seconds));
    else if (shape.pattern == GrowthPattern::flat)
      text = fmt::format("{} flat", name);
    else if (shape.pattern == GrowthPattern::unclear)
      text = fmt::format("{} {}, no clear trend", name, signed_bytes_of(shape.change));
    return text;
  };
  std::string text = part("RssAnon", totals.rss_anon);
  const auto add = [&](std::string_view name, const GrowthShape& shape) {
    if (shape.change >= static_cast<double>(least_resident_growth)) text += ", " + part(name, shape);
  };
  add("RssShmem", totals.rss_shmem);
  add("swap", totals.swap);
  add("RssFile", totals.rss_file);
  add("page tables", totals.page_tables);
  const double resident = totals.rss_anon.change + totals.rss_shmem.change + totals.rss_file.change;
  if (resident < static_cast<double>(least_resident_growth)) {
    if (totals.mapped.change >= static_cast<double>(least_mapped_growth))
      text += fmt::format(", {} more mapped and not used", bytes_of(totals.mapped.change));
  } else if (view.leading_rows != 0) {
    text += fmt::format(", {} of the growth in {}", share_text(view.leading_share),
                        regions_text(view.leading_regions));
  }
  return text;
}

bool mappings_run_out(std::uint64_t mappings, std::optional<std::uint64_t> limit) {
  return limit && mappings >= *limit / 10 * 9;
}

std::string mappings_text(std::uint64_t mappings, std::optional<std::uint64_t> limit) {
  if (!limit) return count_text(mappings, "mapping");
  return fmt::format("{} of {} mappings{}", count_text(mappings), count_text(*limit),
                     mapping_warning(mappings, limit));
}

std::string cost_text(const WatchCost& cost) {
  const auto reading = [](std::string_view name, const ReadingCost& each) {
    return each.count == 0
               ? std::string()
               : fmt::format(", {} {} in {:.2f} s (longest {:.1f} ms)", name, count_text(each.count, "time"),
                             each.seconds, each.longest_seconds * 1e3);
  };
  return fmt::format("{:.2f} s of CPU; read status {}{}{}", cost.cpu_seconds,
                     count_text(cost.status.count, "time"), reading("maps", cost.maps),
                     reading("smaps", cost.smaps)) +
         (cost.put_off == 0 ? ""
                            : fmt::format("; {} left out, since statm had not changed",
                                          count_text(cost.put_off, "more reading")));
}

namespace {

std::string mappings_of_limit(const WatchView& view, std::optional<std::uint64_t> limit) {
  return limit ? fmt::format("{} of {} mappings", count_text(view.regions), count_text(*limit))
               : count_text(view.regions, "mapping");
}

}  // namespace

std::string watch_facts(const WatchView& view, const WatchFacts& facts, std::size_t width) {
  struct Fact {
    std::string text;
    int importance;
  };
  const double share = view.seconds > 0 ? facts.cpu_seconds / view.seconds : 0;
  std::vector<Fact> shown{{fmt::format("pid {} {}", facts.pid, printable(facts.comm)), 5},
                          {view.threads ? count_text(*view.threads, "thread") : "", 1},
                          {mappings_of_limit(view, facts.mapping_limit), 3},
                          {seconds_text(view.seconds), 2},
                          {fmt::format("cost {} of a CPU", share_text(share)), 6}};
  if (facts.smaps_interval > facts.interval * 1.5)
    shown.push_back({fmt::format("smaps every {:.0f} s", facts.smaps_interval), 4});
  std::erase_if(shown, [](const Fact& fact) { return fact.text.empty(); });
  for (;;) {
    std::string line;
    for (const Fact& fact : shown) line += (line.empty() ? "" : ", ") + fact.text;
    if (columns(line) <= width) return line;
    if (shown.size() == 1) return fit(line, width);
    shown.erase(std::min_element(shown.begin(), shown.end(),
                                 [](const Fact& a, const Fact& b) { return a.importance < b.importance; }));
  }
}

/// Short enough for a line of a log.
std::string label_of(const WatchRow& row) {
  constexpr std::size_t width = 60;
  const std::string label = row_label(row, width);
  return columns(label) <= width ? label : fit(label, width);
}

std::string watch_line(const WatchView& view, const std::string& note) {
  const WatchTotals& totals = view.totals;
  std::string line = fmt::format("{:>8}  RssAnon {} ({})", seconds_text(view.seconds),
                                 bytes_of(totals.rss_anon_bytes), signed_bytes_of(totals.rss_anon.change));
  const auto add = [&](std::string_view name, const GrowthShape& shape) {
    if (std::abs(shape.change) >= least_shape_change)
      line += fmt::format("  {} {}", name, signed_bytes_of(shape.change));
  };
  add("RssShmem", totals.rss_shmem);
  add("swap", totals.swap);
  add("RssFile", totals.rss_file);
  add("page tables", totals.page_tables);
  line +=
      fmt::format("  mapped {} ({})", bytes_text(totals.mapped_bytes), signed_bytes_of(totals.mapped.change));
  const WatchRow* most = nullptr;
  for (const WatchRow& row : view.rows)
    if (!row.shape_is_of_size && row.shape.change >= least_shape_change &&
        (most == nullptr || row.shape.change > most->shape.change))
      most = &row;
  if (most != nullptr)
    line += fmt::format("  most: {} {}", label_of(*most), signed_bytes_of(most->shape.change));
  if (!note.empty()) line += "  " + note;
  return line;
}

}  // namespace whomap
