#include "server/bench/bench_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace minfer {
namespace {

double sum_of_squares(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0.0;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  return squares;
}

}  // namespace

double mean_of(const std::vector<double>& values) {
  return values.empty()
             ? 0.0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  return percentile_of(std::move(values), 0.5);
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0.0;
  return std::sqrt(sum_of_squares(values) / static_cast<double>(values.size() - 1));
}

double population_deviation_of(const std::vector<double>& values) {
  if (values.empty()) return 0.0;
  return std::sqrt(sum_of_squares(values) / static_cast<double>(values.size()));
}

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], rank - static_cast<double>(below));
}

}  // namespace minfer
