#include "tests/reference/short_conv.h"

namespace minfer::reference {

Matrix short_conv(const Matrix& x, std::span<const float> weight, std::span<const float> bias,
                  std::vector<double>& state) {
  const int64_t channels = x.cols / 3, size = std::ssize(weight) / channels;
  Matrix out(x.rows, channels);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c)
      state.push_back(x.at(t, c) * x.at(t, 2 * channels + c));
    const int64_t now = std::ssize(state) / channels - 1;
    for (int64_t c = 0; c < channels; ++c) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(c)]);
      for (int64_t back = 0; back < size && back <= now; ++back)
        sum += static_cast<double>(weight[static_cast<size_t>((size - 1 - back) * channels + c)]) *
               state[static_cast<size_t>((now - back) * channels + c)];
      out.at(t, c) = x.at(t, channels + c) * sum;
    }
  }
  return out;
}

}  // namespace minfer::reference
