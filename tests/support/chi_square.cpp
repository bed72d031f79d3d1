#include "tests/support/chi_square.h"

namespace minfer::test {

ChiSquare chi_square(const SamplingRow& row, std::span<const double> probabilities,
                     const std::function<std::vector<SampledToken>(std::span<const SamplingRow>)>& draw) {
  constexpr int kDraws = 100'000;
  std::vector<SamplingRow> rows(kChiSquareRows, row);
  std::vector<double> counts(probabilities.size());
  for (int first = 0; first < kDraws; first += kChiSquareRows) {
    for (int i = 0; i < kChiSquareRows; ++i)
      rows[static_cast<size_t>(i)].position = first + i;
    for (const SampledToken& token : draw(rows))
      ++counts[static_cast<size_t>(token.token)];
  }
  ChiSquare result;
  double rare_expected = 0.0;
  double rare_count = 0.0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * kDraws;
    if (expected >= 5.0) {
      result.add(expected, counts[i]);
    } else {
      rare_expected += expected;
      rare_count += counts[i];
    }
  }
  if (rare_expected > 0.0) result.add(rare_expected, rare_count);
  return result;
}

}  // namespace minfer::test
