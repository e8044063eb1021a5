// SPDX-License-Identifier: Apache-2.0
#include "core/verify/plot.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/judge.h"

namespace whomap {
namespace {

struct Dot {
  double seconds = 0;
  double bytes = 0;
  bool point = false;
};

std::vector<Dot> dots_of(const VerifyRun& run) {
  std::vector<Dot> dots;
  for (const Measurement& at : run.measurements) {
    const auto& resident = at.memory.rss_anon ? at.memory.rss_anon : at.memory.rss;
    if (resident)
      dots.push_back({at.seconds,
                      static_cast<double>(*resident) + static_cast<double>(at.memory.swap.value_or(0)),
                      at.point});
  }
  return dots;
}

std::string size_label(double bytes) {
  constexpr double most = 1.8e19;  // what fits uint64_t
  return bytes_text(static_cast<std::uint64_t>(std::clamp(bytes, 0.0, most)));
}

std::size_t scaled(double value, double low, double high, std::size_t cells) {
  const double share = high > low ? (value - low) / (high - low) : 0;
  return std::min(static_cast<std::size_t>(std::lround(share * static_cast<double>(cells - 1))), cells - 1);
}

}  // namespace

std::string plot(const VerifyRun& run, double least_span, const PlotSize& size) {
  const std::vector<Dot> dots = dots_of(run);
  if (dots.size() < 2 || !(dots.back().seconds > dots.front().seconds)) return {};
  const auto [lowest, highest] = std::minmax_element(
      dots.begin(), dots.end(), [](const Dot& a, const Dot& b) { return a.bytes < b.bytes; });
  const double missing = std::max(least_span - (highest->bytes - lowest->bytes), 0.0);
  const double low = std::max(lowest->bytes - missing / 2, 0.0);
  const double high = std::max(highest->bytes, low + std::max(highest->bytes - lowest->bytes, least_span));

  constexpr std::size_t label_width = 9;
  const std::size_t columns = std::max<std::size_t>(size.width, 40) - label_width - 2;
  const std::size_t lines = std::max<std::size_t>(size.height, 3);
  const auto column = [&](double seconds) {
    return scaled(seconds, dots.front().seconds, dots.back().seconds, columns);
  };
  std::vector<std::string> rows(lines, std::string(columns, ' '));
  const auto points = points_of(run);
  const bool judged = points.size() >= 3;
  if (judged)
    for (std::string& row : rows) row[column(points[middle_of(points.size())]->seconds)] = ':';
  for (const bool points_now : {false, true})  // points over readings
    for (const Dot& dot : dots)
      if (dot.point == points_now)
        rows[lines - 1 - scaled(dot.bytes, low, high, lines)][column(dot.seconds)] = dot.point ? 'o' : '.';

  std::string text;
  for (std::size_t i = 0; i < lines; ++i) {
    const std::string label = i == 0 ? size_label(high) : i + 1 == lines ? size_label(low) : "";
    rows[i].erase(rows[i].find_last_not_of(' ') + 1);
    text += fmt::format("{:>{}} |{}\n", label, label_width, rows[i]);
  }
  const std::string end = seconds_text(dots.back().seconds - dots.front().seconds);
  text += fmt::format("{:>{}} +{}\n", "", label_width, std::string(columns, '-'));
  text += fmt::format("{:>{}}  {:<{}}{}\n", "", label_width, "0 s", columns - end.size(), end);
  return text;
}

}  // namespace whomap
