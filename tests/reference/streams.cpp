#include "tests/reference/streams.h"

#include <algorithm>
#include <cmath>

namespace minfer::reference {
namespace {

/// Row `row` of coefs times the token's tanh(scale routed).
double coef(std::span<const float> coefs, int64_t row, const Matrix& routed, int64_t token, double scale) {
  double sum = 0.0;
  for (int64_t j = 0; j < routed.cols; ++j)
    sum += static_cast<double>(coefs[static_cast<size_t>(row * routed.cols + j)]) *
           std::tanh(scale * routed.at(token, j));
  return sum;
}

double mean_square(const Matrix& streams, int64_t token, int64_t first, int64_t cols) {
  double sum = 0.0;
  for (int64_t i = first; i < first + cols; ++i)
    sum += streams.at(token, i) * streams.at(token, i);
  return sum / static_cast<double>(cols);
}

}  // namespace

void mix_streams(MixStreamsArgs::Kind kind, Matrix& streams, const Matrix& routed, double scale,
                 std::span<const float> coefs, std::span<const float> weight, Matrix& x) {
  using Kind = MixStreamsArgs::Kind;
  const Matrix before = streams;
  const int64_t cols = x.cols, count = streams.cols / cols;
  for (int64_t t = 0; t < streams.rows; ++t) {
    for (int64_t k = 0; k < count; ++k) {
      const double factor =
          std::sqrt(mean_square(before, t, 0, cols) /
                    std::max(mean_square(before, t, k * cols, cols), static_cast<double>(kLeastMeanSquare)));
      for (int64_t i = 0; i < cols; ++i) {
        double& value = streams.at(t, k * cols + i);
        if (kind == Kind::match && k > 0) value *= factor;
        if (kind == Kind::correct)
          value += (1.0 + coef(coefs, k, routed, t, scale)) * (x.at(t, i) - before.at(t, i));
        for (int64_t j = 0; kind == Kind::predict && j < count; ++j)
          value += coef(coefs, k * count + j, routed, t, scale) * before.at(t, j * cols + i);
      }
    }
    for (int64_t i = 0; i < cols; ++i) {
      double sum = 0.0;
      for (int64_t k = 0; k < count; ++k)
        sum += streams.at(t, k * cols + i) / static_cast<double>(count);
      const double first = streams.at(t, i);
      x.at(t, i) = kind == Kind::match     ? sum
                   : kind == Kind::correct ? weight[static_cast<size_t>(i)] * first
                                           : first;
    }
  }
}

}  // namespace minfer::reference
