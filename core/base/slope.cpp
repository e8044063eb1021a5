// SPDX-License-Identifier: Apache-2.0
#include "core/base/slope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace whomap {
namespace {

double median_of_sorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/// Variance of Kendall's S with groups of equal values taken off (Sen 1968).
double kendall_variance(const std::vector<Sample>& samples) {
  const auto term = [](double n) { return n * (n - 1) * (2 * n + 5); };
  std::vector<double> values;
  values.reserve(samples.size());
  for (const Sample& sample : samples) values.push_back(sample.value);
  std::sort(values.begin(), values.end());
  double variance = term(static_cast<double>(values.size()));
  for (auto group = values.begin(); group != values.end();) {
    const auto next = std::upper_bound(group, values.end(), *group);
    variance -= term(static_cast<double>(next - group));
    group = next;
  }
  return std::max(variance, 0.0) / 18;
}

/// Lag-1 autocorrelation around the line, 0 when there is none or it is negative.
double autocorrelation(const std::vector<Sample>& samples, double per_second) {
  std::vector<double> residuals;
  residuals.reserve(samples.size());
  for (const Sample& sample : samples) residuals.push_back(sample.value - per_second * sample.seconds);
  double mean = 0;
  for (const double each : residuals) mean += each / static_cast<double>(residuals.size());
  double square = 0;
  double product = 0;
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    square += (residuals[i] - mean) * (residuals[i] - mean);
    if (i > 0) product += (residuals[i] - mean) * (residuals[i - 1] - mean);
  }
  if (square <= 0) return 0;
  const double raw = product / square;
  constexpr double most = 0.99;
  return std::clamp(raw + (1 + 3 * raw) / static_cast<double>(samples.size()), 0.0, most);
}

/// Two-sided 95 % quantile of Student's t, from the normal one (Abramowitz and Stegun 26.7.5, first term).
double student_95(double degrees_of_freedom) {
  constexpr double normal = 1.959964;
  return normal + (normal * normal * normal + normal) / (4 * degrees_of_freedom);
}

}  // namespace

std::optional<Slope> theil_sen(const std::vector<Sample>& samples) {
  if (samples.size() < least_samples_for_slope) return std::nullopt;
  std::vector<double> slopes;
  slopes.reserve(samples.size() * (samples.size() - 1) / 2);
  for (std::size_t later = 1; later < samples.size(); ++later) {
    if (!(samples[later].seconds > samples[later - 1].seconds)) return std::nullopt;
    for (std::size_t earlier = 0; earlier < later; ++earlier)
      slopes.push_back((samples[later].value - samples[earlier].value) /
                       (samples[later].seconds - samples[earlier].seconds));
  }
  std::sort(slopes.begin(), slopes.end());
  const double estimate = median_of_sorted(slopes);
  const double r = autocorrelation(samples, estimate);
  const double reach = student_95(static_cast<double>(samples.size()) - 2) *
                       std::sqrt(kendall_variance(samples) * (1 + r) / (1 - r));
  const auto pairs = static_cast<double>(slopes.size());
  // Ranks counted from 1, rounded outwards.
  const double low_rank = std::max(std::floor((pairs - reach) / 2), 1.0);
  const double high_rank = std::min(std::ceil((pairs + reach) / 2) + 1, pairs);
  return Slope{estimate, slopes[static_cast<std::size_t>(low_rank) - 1],
               slopes[static_cast<std::size_t>(high_rank) - 1]};
}

}  // namespace whomap
