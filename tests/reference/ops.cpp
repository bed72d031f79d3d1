#include "tests/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace minfer::reference {

Matrix to_matrix(std::span<const float> values, int64_t rows, int64_t cols) {
  Matrix matrix(rows, cols);
  std::copy(values.begin(), values.begin() + rows * cols, matrix.data.begin());
  return matrix;
}

Matrix linear(const Matrix& x, const Matrix& weight) {
  Matrix out(x.rows, weight.rows);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t n = 0; n < weight.rows; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < x.cols; ++k)
        sum += x.at(t, k) * weight.at(n, k);
      out.at(t, n) = sum;
    }
  }
  return out;
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

double gated(GateActivation activation, double gate, double up) {
  switch (activation) {
    case GateActivation::silu:
      return silu(gate) * up;
    case GateActivation::gelu_tanh:
      return 0.5 * gate * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate))) *
             up;
    case GateActivation::gelu:
      return 0.5 * gate * (1.0 + std::erf(gate / std::sqrt(2.0))) * up;
    case GateActivation::relu:
      return std::max(gate, 0.0) * up;
    case GateActivation::clamped_swiglu: {
      const double low = std::min(gate, 7.0);
      return low / (1.0 + std::exp(-1.702 * low)) * (std::clamp(up, -7.0, 7.0) + 1.0);
    }
  }
  return NAN;
}

Matrix gate_up_swiglu(const Matrix& x, const Matrix& gate, const Matrix& up, GateActivation activation,
                      const GateUpBiases& biases) {
  Matrix out = linear(x, gate);
  const Matrix right = linear(x, up);
  const auto bias = [&](const std::vector<float>& values, size_t i) {
    return values.empty() ? 0.0 : values[i % values.size()];
  };
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = gated(activation, out.data[i] + bias(biases.gate, i), right.data[i] + bias(biases.up, i));
  return out;
}

Matrix rms_norm(const Matrix& x, std::span<const float> weight, double eps) {
  Matrix out(x.rows, x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    double squares = 0.0;
    for (int64_t i = 0; i < x.cols; ++i)
      squares += x.at(t, i) * x.at(t, i);
    const double norm = std::sqrt(squares / static_cast<double>(x.cols) + eps);
    for (int64_t i = 0; i < x.cols; ++i)
      out.at(t, i) = x.at(t, i) / norm * weight[static_cast<size_t>(i)];
  }
  return out;
}

Matrix norm(const Matrix& x, const NormOptions& options) {
  Matrix out(x.rows, x.cols);
  const auto cols = static_cast<double>(x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    double mean = 0.0, squares = 0.0;
    const bool cuts = options.kind == NormKind::cut, has_mean = cuts || options.kind == NormKind::layer;
    for (int64_t i = 0; has_mean && i < x.cols; ++i)
      mean += x.at(t, i) / cols;
    for (int64_t i = 0; i < x.cols; ++i)
      squares += (x.at(t, i) - mean) * (x.at(t, i) - mean);
    const double divisor = options.kind == NormKind::none ? 1.0 : std::sqrt(squares / cols + options.eps);
    for (int64_t i = 0; i < x.cols; ++i) {
      double value = (x.at(t, i) - mean) / divisor;
      if (cuts) value = std::max(0.0, x.at(t, i) - mean - options.cut * std::sqrt(squares / cols));
      if (!options.weight.empty()) value *= options.weight[static_cast<size_t>(i)];
      if (!options.bias.empty()) value += options.bias[static_cast<size_t>(i)];
      out.at(t, i) = options.scale * value;
    }
  }
  return out;
}

double activated(const Activation& activation, double x) {
  switch (activation.kind) {
    case Activation::Kind::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::Kind::gelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Activation::Kind::xielu: {
      const double p = activation.positive, n = activation.negative, b = activation.linear;
      if (x > 0.0) return p * x * x + b * x;
      return n * (std::expm1(std::min<double>(x, activation.eps)) - x) + b * x;
    }
    case Activation::Kind::relu_squared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::Kind::soft_cap:
      return activation.cap * std::tanh(x / activation.cap);
  }
  return x;
}

void rotate_head(std::span<double> head, std::span<const float> cos_sin, RopePairing pairing) {
  const size_t pairs = cos_sin.size() / 2;
  for (size_t i = 0; i < pairs; ++i) {
    double& first = head[pairing == RopePairing::interleaved ? 2 * i : i];
    double& second = head[pairing == RopePairing::interleaved ? 2 * i + 1 : i + pairs];
    const double cosine = cos_sin[2 * i];
    const double sine = cos_sin[2 * i + 1];
    const double x = first;
    const double y = second;
    first = x * cosine - y * sine;
    second = y * cosine + x * sine;
  }
}

Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, int64_t head_size, double scale,
                 const AttentionOptions& options) {
  const int64_t heads = q.cols / head_size;
  const int64_t kv_heads = k.cols / head_size;
  const int64_t value_size = v.cols / kv_heads;
  Matrix out(q.rows, heads * value_size);
  for (int64_t t = 0; t < q.rows; ++t) {
    const int64_t position = k.rows - q.rows + t;
    int64_t first = options.window > 0 ? std::max<int64_t>(0, position - options.window + 1) : 0;
    if (options.chunked) first = position / options.window * options.window;
    first = std::max(first, std::min(options.hidden, position));
    std::vector<int64_t> seen;
    if (!options.chosen.empty()) {
      const std::vector<int32_t>& chosen = options.chosen[static_cast<size_t>(t)];
      seen.assign(chosen.begin(), chosen.end());
    }
    if (seen.empty()) {
      seen.resize(static_cast<size_t>(position + 1 - first));
      std::iota(seen.begin(), seen.end(), first);
    }
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_head = h / (heads / kv_heads);
      std::vector<double> weights;
      for (const int64_t j : seen) {
        double dot = 0.0;
        for (int64_t d = 0; d < head_size; ++d)
          dot += q.at(t, h * head_size + d) * k.at(j, kv_head * head_size + d);
        const double score = dot * scale;
        weights.push_back(options.logit_cap > 0.0 ? options.logit_cap * std::tanh(score / options.logit_cap)
                                                  : score);
      }
      double max = *std::ranges::max_element(weights);
      double sum = 0.0;
      if (!options.sinks.empty()) {
        const double sink = options.sinks[static_cast<size_t>(h)];
        max = std::max(max, sink);
        sum = std::exp(sink - max);
      }
      for (double& weight : weights)
        sum += weight = std::exp(weight - max);
      for (size_t i = 0; i < seen.size(); ++i) {
        const double share = weights[i] / sum;
        for (int64_t d = 0; d < value_size; ++d)
          out.at(t, h * value_size + d) += share * v.at(seen[i], kv_head * value_size + d);
      }
    }
  }
  return out;
}

namespace {

/// Indices in descending order of the values; ties put the lower index first.
std::vector<int32_t> descending(std::span<const double> values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  return order;
}

/// Returns for each expert whether its group is among the best.
std::vector<bool> in_best_groups(const ExpertChoice& choice, const std::vector<double>& values) {
  const size_t size = values.size() / static_cast<size_t>(choice.groups);
  std::vector<double> worth;
  for (size_t first = 0; first < values.size(); first += size) {
    std::vector<double> group(values.begin() + static_cast<std::ptrdiff_t>(first),
                              values.begin() + static_cast<std::ptrdiff_t>(first + size));
    std::ranges::sort(group, std::greater());
    worth.push_back(choice.groups == 1 || choice.group_best == 1 ? group[0] : group[0] + group[1]);
  }
  std::vector<bool> counts(values.size(), false);
  const std::vector<int32_t> best = descending(worth);
  for (int32_t i = 0; i < choice.groups_used; ++i) {
    for (size_t e = 0; e < size; ++e)
      counts[static_cast<size_t>(best[i]) * size + e] = true;
  }
  return counts;
}

}  // namespace

ChosenExperts moe_route(std::span<const float> logits, int32_t experts_used, const ExpertChoice& choice,
                        std::span<const float> bias) {
  const std::vector<double> logprobs = log_softmax(logits);
  const bool is_sigmoid = choice.score == ExpertScore::sigmoid;
  std::vector<double> scores, values;
  for (size_t e = 0; e < logits.size(); ++e) {
    const auto logit = static_cast<double>(logits[e]);
    scores.push_back(is_sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logprobs[e]));
    values.push_back(scores[e] + (bias.empty() ? 0.0 : static_cast<double>(bias[e])));
  }
  const std::vector<bool> counts = in_best_groups(choice, values);
  ChosenExperts route;
  double chosen = 0.0;
  for (const int32_t expert : descending(values)) {
    if (!counts[static_cast<size_t>(expert)] || std::ssize(route.experts) == experts_used) continue;
    route.experts.push_back(expert);
    route.weights.push_back(scores[static_cast<size_t>(expert)]);
    chosen += route.weights.back();
  }
  for (double& weight : route.weights)
    weight *= static_cast<double>(choice.scale) / (choice.normalise ? chosen : 1.0);
  return route;
}

Matrix moe_gate_up_swiglu(const Matrix& x, std::span<const Matrix> gate, std::span<const Matrix> up,
                          std::span<const ChosenExperts> routes, GateActivation activation,
                          const GateUpBiases& biases, bool weights_input) {
  const auto bias_of = [&](const std::vector<float>& values, size_t expert) {
    if (values.empty()) return values;
    const auto rows = static_cast<std::ptrdiff_t>(gate[0].rows);
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(expert) * rows;
    return std::vector<float>(first, first + rows);
  };
  const auto used = static_cast<int64_t>(routes[0].experts.size());
  Matrix out(x.rows * used, gate[0].rows);
  for (int64_t t = 0; t < x.rows; ++t) {
    Matrix row(1, x.cols);
    for (int64_t j = 0; j < used; ++j) {
      for (int64_t i = 0; i < x.cols; ++i)
        row.at(0, i) = (weights_input ? routes[t].weights[j] : 1.0) * x.at(t, i);
      const auto expert = static_cast<size_t>(routes[t].experts[j]);
      const Matrix hidden =
          gate_up_swiglu(row, gate[expert], up[expert], activation,
                         {.gate = bias_of(biases.gate, expert), .up = bias_of(biases.up, expert)});
      for (int64_t f = 0; f < hidden.cols; ++f)
        out.at(t * used + j, f) = hidden.at(0, f);
    }
  }
  return out;
}

Matrix moe_down(const Matrix& hidden, std::span<const Matrix> down, std::span<const ChosenExperts> routes,
                std::span<const float> bias) {
  const auto used = static_cast<int64_t>(routes[0].experts.size());
  Matrix out(hidden.rows / used, down[0].rows);
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t j = 0; j < used; ++j) {
      Matrix row(1, hidden.cols);
      for (int64_t f = 0; f < hidden.cols; ++f)
        row.at(0, f) = hidden.at(t * used + j, f);
      const int64_t expert = routes[t].experts[j];
      const Matrix part = linear(row, down[static_cast<size_t>(expert)]);
      for (int64_t i = 0; i < out.cols; ++i) {
        const auto added =
            bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(expert * out.cols + i)]);
        out.at(t, i) += routes[t].weights[j] * (part.at(0, i) + added);
      }
    }
  }
  return out;
}

}  // namespace minfer::reference
