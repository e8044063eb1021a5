// SPDX-License-Identifier: Apache-2.0
// The slope of a series and how well it is known.
#pragma once

#include <optional>
#include <vector>

namespace whomap {

struct Sample {
  double seconds = 0;
  double value = 0;
};

struct Slope {
  double per_second = 0;
  double low = 0;  ///< 95 % interval
  double high = 0;
};

/// Fewer samples than this give no interval: with 6, one order out of 720 rises all the way by chance.
constexpr std::size_t least_samples_for_slope = 6;

/// Theil-Sen slope: the median of the slopes of all pairs, which a quarter of wild values cannot move
/// much (Sen, J. Am. Stat. Assoc. 63, 1968). The interval is Kendall's, with Sen's correction for
/// equal values. Memory readings follow each other, so the variance is multiplied by (1+r)/(1-r) with the
/// residuals' lag-1 autocorrelation r (Yue and Wang, Water Resour. Manag. 18, 2004), r itself corrected for
/// its bias in short series (Marriott and Pope, Biometrika 41, 1954); as r is estimated, the quantile is
/// Student's. The interval never needs more than
/// all pairs: where that many are asked for, it is from the flattest to the steepest pair, which excludes
/// zero only when every sample is above the one before.
///
/// nullopt for fewer than least_samples_for_slope samples or when their times are not ascending. Time and
/// memory grow with the square of the count: group first (see verify/trend.cpp).
std::optional<Slope> theil_sen(const std::vector<Sample>& samples);

}  // namespace whomap
