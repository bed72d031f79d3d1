#include "tests/reference/delta_net.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace minfer::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

void l2_norm(Matrix& x, int64_t row, int64_t first, int64_t size, double scale) {
  double squares = 0.0;
  for (int64_t i = 0; i < size; ++i)
    squares += x.at(row, first + i) * x.at(row, first + i);
  for (int64_t i = 0; i < size; ++i)
    x.at(row, first + i) *= scale / std::sqrt(squares + 1e-6);
}

}  // namespace

Matrix delta_conv(const Matrix& x, const DeltaNetShape& shape, std::span<const float> weight,
                  DeltaState& state) {
  const int64_t channels = shape.channels(), kept = shape.conv_size - 1;
  if (state.conv.empty()) state.conv.assign(static_cast<size_t>(kept * channels), 0.0);
  std::vector<double> inputs = state.conv;  // followed by those of x
  inputs.insert(inputs.end(), x.data.begin(), x.data.end());
  Matrix out(x.rows, channels);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int64_t j = 0; j < shape.conv_size; ++j)
        sum += static_cast<double>(weight[static_cast<size_t>(j * channels + c)]) *
               inputs[static_cast<size_t>((t + j) * channels + c)];
      out.at(t, c) = silu(sum);
    }
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      l2_norm(out, t, head * shape.key_size, shape.key_size, 1.0 / std::sqrt(shape.key_size));
      l2_norm(out, t, shape.key_columns() + head * shape.key_size, shape.key_size, 1.0);
    }
  }
  state.conv.assign(inputs.end() - kept * channels, inputs.end());
  return out;
}

Matrix delta_rule(const Matrix& qkv, const Matrix& gates, const DeltaNetShape& shape,
                  std::span<const float> dt_bias, std::span<const float> decay, DeltaState& state) {
  const int64_t rows = shape.key_size, cols = shape.value_size, heads = shape.value_heads;
  const int64_t of_key = heads / shape.key_heads;
  if (state.delta.empty()) state.delta.assign(static_cast<size_t>(shape.delta_state()), 0.0);
  Matrix out(qkv.rows, shape.value_columns());
  for (int64_t t = 0; t < qkv.rows; ++t) {
    for (int64_t head = 0; head < shape.value_heads; ++head) {
      const int64_t key_head = shape.in_turn ? head % shape.key_heads : head / of_key;
      const bool is_alone = shape.in_turn || shape.decays_rows;  // all betas stand in front of all alphas
      const int64_t beta = is_alone ? head : key_head * 2 * of_key + head % of_key;
      const double b = sigmoid(gates.at(t, beta));
      const auto decay_of_row = [&](int64_t row) {
        const int64_t index = shape.decays_rows ? head * rows + row : head;
        const double alpha =
            gates.at(t, shape.decays_rows ? heads + index : beta + (is_alone ? heads : of_key));
        const double x = alpha + static_cast<double>(dt_bias[static_cast<size_t>(index)]);
        const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
        return std::exp(static_cast<double>(decay[static_cast<size_t>(head)]) * softplus);
      };
      double* s = state.delta.data() + head * rows * cols;
      const auto q = [&](int64_t i) { return qkv.at(t, key_head * rows + i); };
      const auto k = [&](int64_t i) { return qkv.at(t, shape.key_columns() + key_head * rows + i); };
      for (int64_t i = 0; i < rows; ++i) {
        const double a = decay_of_row(i);
        for (int64_t v = 0; v < cols; ++v)
          s[i * cols + v] *= a;
      }
      for (int64_t v = 0; v < cols; ++v) {
        double answer = 0.0, value = 0.0;
        for (int64_t i = 0; i < rows; ++i)
          answer += s[i * cols + v] * k(i);
        const double wanted = qkv.at(t, 2 * shape.key_columns() + head * cols + v);
        for (int64_t i = 0; i < rows; ++i) {
          s[i * cols + v] += k(i) * b * (wanted - answer);
          value += s[i * cols + v] * q(i);
        }
        out.at(t, head * cols + v) = value;
      }
    }
  }
  return out;
}

Matrix head_gate(const Matrix& x, const Matrix& gate, int64_t heads, HeadGateArgs::Function function,
                 std::span<const float> norm, double eps) {
  Matrix out(x.rows, x.cols);
  const int64_t size = x.cols / heads;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      double squares = 0.0;
      for (int64_t i = 0; i < size; ++i)
        squares += x.at(t, h * size + i) * x.at(t, h * size + i);
      const double root = norm.empty() ? 1.0 : std::sqrt(squares / static_cast<double>(size) + eps);
      for (int64_t i = 0; i < size; ++i) {
        const double weight = norm.empty() ? 1.0 : static_cast<double>(norm[static_cast<size_t>(i)]);
        const double g = gate.at(t, h * size + i);
        const double root_2_pi = std::sqrt(2.0 / std::numbers::pi);
        const double factor = function == HeadGateArgs::Function::gelu_tanh
                                  ? 0.5 * g * (1.0 + std::tanh(root_2_pi * (g + 0.044715 * g * g * g)))
                              : function == HeadGateArgs::Function::silu ? silu(g)
                                                                         : sigmoid(g);
        out.at(t, h * size + i) = x.at(t, h * size + i) / root * weight * factor;
      }
    }
  }
  return out;
}

}  // namespace minfer::reference
