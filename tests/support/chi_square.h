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
  /// Four standard deviations above the mean: the degrees of freedom f, and a variance of 2 f.
  double limit() const { return cells - 1 + 4.0 * std::sqrt(2.0 * (cells - 1)); }
};

/// Rows that are drawn from at a time.
inline constexpr int kChiSquareRows = 1000;

/// 100,000 draws by `row` at positions 0, 1, ... against `probabilities`. `draw`: one token a row, each from
/// the same logits. Tokens expected under 5 times share a cell. The seed is fixed, so the outcome is too.
ChiSquare chi_square(const SamplingRow& row, std::span<const double> probabilities,
                     const std::function<std::vector<SampledToken>(std::span<const SamplingRow>)>& draw);

}  // namespace minfer::test
