// SPDX-License-Identifier: Apache-2.0
#include "core/verify/mappings.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/match/quantity.h"
#include "core/verify/amount.h"

namespace whomap {
namespace {

using Points = std::vector<const Measurement*>;

std::uint64_t limit_of(const VerifyRun& run) {
  constexpr std::uint64_t kernel_default = 65530;  // DEFAULT_MAX_MAP_COUNT in include/linux/mm.h
  return run.max_map_count.value_or(kernel_default);
}

double count_at(const Measurement& at) {
  return static_cast<double>(*at.most_mappings);
}

double rate(const Measurement& from, const Measurement& to) {
  return (count_at(to) - count_at(from)) / std::max(to.seconds - from.seconds, 1e-3);
}

/// How long until the process has as many as it may: at the pace of the judged part, when that goes on from
/// the first point to the last without ebbing.
std::optional<double> seconds_to_limit(const VerifyRun& run, const Points& points) {
  constexpr double least_growth = 64;  // a pool of threads that starts has as many
  if (points.size() < 3) return std::nullopt;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (!points[i]->most_mappings || (i > 0 && *points[i]->most_mappings < *points[i - 1]->most_mappings))
      return std::nullopt;
  const Measurement& middle = *points[middle_of(points.size())];
  const Measurement& last = *points.back();
  const double late = rate(middle, last);
  if (count_at(last) - count_at(middle) < least_growth || late < rate(*points.front(), middle) / 2)
    return std::nullopt;
  return std::max(static_cast<double>(limit_of(run)) - count_at(last), 0.0) / late;
}

}  // namespace

std::optional<Verdict> judge_mappings(const VerifyRun& run, const Points& points, double anonymous_change) {
  const auto left = seconds_to_limit(run, points);
  constexpr double a_day = 86400;
  if (!left || *left > a_day) return std::nullopt;
  const std::string text = fmt::format(
      "mappings grew from {} to {} between the middle and the last point, at which pace the {} of "
      "vm.max_map_count are reached in {}; anonymous memory changed by {}",
      count_text(*points[middle_of(points.size())]->most_mappings), count_text(*points.back()->most_mappings),
      count_text(limit_of(run)), seconds_text(*left), change_text(anonymous_change));
  if (points.size() < least_samples_for_slope)
    return Verdict{VerdictClass::inconclusive, text, "see with --samples 6 or more whether that goes on"};
  return Verdict{VerdictClass::moved, text, "whomap trace -p PID shows what maps them and does not unmap"};
}

std::optional<std::string> mappings_note(const VerifyRun& run, const Points& points) {
  constexpr double near_share = 0.5;
  if (points.empty() || !points.back()->most_mappings) return std::nullopt;
  if (count_at(*points.back()) < near_share * static_cast<double>(limit_of(run))) return std::nullopt;
  return fmt::format("{} of the {} that a process may have (vm.max_map_count); mmap fails beyond",
                     count_text(*points.back()->most_mappings, "mapping"), count_text(limit_of(run)));
}

}  // namespace whomap
