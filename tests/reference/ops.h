#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

/// The ops of Backend in double precision, one element at a time, in the order in which the formula
/// is written: slow, and meant to be read. Every backend is compared with them.
namespace minfer::reference {

/// Row-major [rows, cols].
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> data;

  Matrix() = default;
  Matrix(int64_t row_count, int64_t col_count)
      : rows(row_count), cols(col_count), data(static_cast<size_t>(row_count * col_count)) {}
  double& at(int64_t row, int64_t col) { return data[static_cast<size_t>(row * cols + col)]; }
  double at(int64_t row, int64_t col) const { return data[static_cast<size_t>(row * cols + col)]; }
};

Matrix to_matrix(std::span<const float> values, int64_t rows, int64_t cols);

/// x W^T: x [tokens, K], weight [N, K].
Matrix linear(const Matrix& x, const Matrix& weight);
double silu(double x);
/// See GateActivation.
double gated(GateActivation activation, double gate, double up);
/// Biases of a test's weights: one row for each matrix, or empty.
struct GateUpBiases {
  std::vector<float> gate;
  std::vector<float> up;
};
/// activation(x gate^T + bg, x up^T + bu).
Matrix gate_up_swiglu(const Matrix& x, const Matrix& gate, const Matrix& up,
                      GateActivation activation = GateActivation::silu, const GateUpBiases& biases = {});

/// x / sqrt(mean(x^2) + eps) * weight, per row.
Matrix rms_norm(const Matrix& x, std::span<const float> weight, double eps);

struct NormOptions {
  NormKind kind = NormKind::rms;
  std::vector<float> weight = {};  ///< [cols], or empty: none
  std::vector<float> bias = {};    ///< likewise
  double eps = 0.0;
  double scale = 1.0;
  double cut = 0.0;
};
/// See NormArgs, without adding to the output.
Matrix norm(const Matrix& x, const NormOptions& options);

/// See Activation.
double activated(const Activation& activation, double x);

/// Rotates one head in place; cos_sin [rotary_size / 2, 2] of its position.
void rotate_head(std::span<double> head, std::span<const float> cos_sin, RopePairing pairing);

/// See AttentionArgs.
struct AttentionOptions {
  int64_t window = 0;
  bool chunked = false;
  int64_t hidden = 0;
  double logit_cap = 0.0;
  std::vector<float> sinks = {};  ///< one for each query head, or empty
  /// The positions that each query sees, in any order; empty, or of a query: all up to its own.
  std::vector<std::vector<int32_t>> chosen = {};
};
/// Causal attention of one sequence over whole K [context, kv_heads * head_size] and V [context, kv_heads * its head size];
/// q [queries, heads * head_size] are the sequence's last tokens.
Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, int64_t head_size, double scale,
                 const AttentionOptions& options = {});

struct ChosenExperts {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};
/// See MoeRouteArgs, for one token; `bias` has one value for each expert, or is empty.
ChosenExperts moe_route(std::span<const float> logits, int32_t experts_used, const ExpertChoice& choice = {},
                        std::span<const float> bias = {});
/// hidden[t * used + j] = gate_up_swiglu(x[t]) of expert routes[t].experts[j]; with `weights_input`, of routes[t].weights[j] * x[t].
Matrix moe_gate_up_swiglu(const Matrix& x, std::span<const Matrix> gate, std::span<const Matrix> up,
                          std::span<const ChosenExperts> routes,
                          GateActivation activation = GateActivation::silu, const GateUpBiases& biases = {},
                          bool weights_input = false);
/// Sum over j of weights[j] * (hidden[t * used + j] down^T + bias) of expert routes[t].experts[j]; `bias`: a row for each expert, or empty.
Matrix moe_down(const Matrix& hidden, std::span<const Matrix> down, std::span<const ChosenExperts> routes,
                std::span<const float> bias = {});

/// The probability of every token, as SamplingRow describes it; for temperature 0 one token has 1.
std::vector<double> distribution(std::span<const float> logits, const SamplingRow& row);
/// log softmax of the raw logits.
std::vector<double> log_softmax(std::span<const float> logits);

}  // namespace minfer::reference
