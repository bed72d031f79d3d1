#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "kernels/sampling.h"

namespace minfer::test {

/// Pearson's statistic over the cells added so far.
struct ChiSquare {
  double statistic = 0.0;
  int cells = 0;

  void add(double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  }
  /// Four standard deviations above the mean: the mean is the degrees of freedom f, the variance 2 f.
  double limit() const { return cells - 1 + 4.0 * std::sqrt(2.0 * (cells - 1)); }
};

/// The number of rows that one call draws.
inline constexpr int kChiSquareRows = 1000;

/// Compares 100,000 draws by `row` at positions 0, 1, ... with `probabilities`. `draw` draws one token for each row,
/// all from the same logits. Tokens expected fewer than 5 times share a cell. The seed is fixed, and so is the outcome.
ChiSquare chi_square(const SamplingRow& row, std::span<const double> probabilities,
                     const std::function<std::vector<SampledToken>(std::span<const SamplingRow>)>& draw);

}  // namespace minfer::test
