#include "tests/reference/mamba.h"

#include <cmath>

namespace minfer::reference {

Matrix mamba_conv(const Matrix& x, const DeltaNetShape& shape, std::span<const float> weight,
                  const MambaHeads& of, DeltaState& state) {
  const int64_t channels = shape.channels(), kept = shape.conv_size - 1;
  if (state.conv.empty()) state.conv.assign(static_cast<size_t>(kept * channels), 0.0);
  std::vector<double> inputs = state.conv;  // followed by those of x
  inputs.insert(inputs.end(), x.data.begin(), x.data.end());
  Matrix out(x.rows, channels);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = of.bias.empty() ? 0.0 : static_cast<double>(of.bias[static_cast<size_t>(c)]);
      for (int64_t j = 0; j < shape.conv_size; ++j)
        sum += static_cast<double>(weight[static_cast<size_t>(j * channels + c)]) *
               inputs[static_cast<size_t>((t + j) * channels + c)];
      out.at(t, c) = silu(sum);
    }
  }
  state.conv.assign(inputs.end() - kept * channels, inputs.end());
  return out;
}

Matrix mamba_scan(const Matrix& xbc, const Matrix& dt, const Matrix& gate, const DeltaNetShape& shape,
                  const MambaHeads& of, DeltaState& state) {
  const int64_t rows = shape.key_size, cols = shape.value_size, inner = shape.value_columns();
  const int64_t of_group = shape.value_heads / shape.key_heads;
  if (state.delta.empty()) state.delta.assign(static_cast<size_t>(shape.delta_state()), 0.0);
  Matrix out(xbc.rows, inner);
  for (int64_t t = 0; t < xbc.rows; ++t) {
    for (int64_t head = 0; head < shape.value_heads; ++head) {
      const auto number = [&](std::span<const float> numbers) {
        return static_cast<double>(numbers[static_cast<size_t>(head)]);
      };
      const double d = std::log1p(std::exp(dt.at(t, head) + number(of.dt_bias)));
      const int64_t b = inner + head / of_group * rows, c = b + shape.key_heads * rows;
      for (int64_t p = 0; p < cols; ++p) {
        const double x = xbc.at(t, head * cols + p);
        double y = number(of.skip) * x;
        for (int64_t n = 0; n < rows; ++n) {
          double& h = state.delta[static_cast<size_t>((head * rows + n) * cols + p)];
          h = std::exp(number(of.decay) * d) * h + d * x * xbc.at(t, b + n);
          y += h * xbc.at(t, c + n);
        }
        out.at(t, head * cols + p) = y * silu(gate.at(t, head * cols + p));
      }
    }
  }
  return out;
}

}  // namespace minfer::reference
