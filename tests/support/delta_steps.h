#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/reference/delta_net.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

/// Steps of a gated delta net against double precision, for any implementation.
namespace minfer::test {

/// Heads below, at and above whole lanes, column groups and rows of 64; one, two and three value heads a key head, side by side or in turn.
inline const std::vector<DeltaNetShape> kDeltaShapes{
    {.key_heads = 1, .value_heads = 1, .key_size = 1, .value_size = 1, .conv_size = 2},
    {.key_heads = 2, .value_heads = 4, .key_size = 12, .value_size = 12, .conv_size = 4},
    {.key_heads = 2, .value_heads = 6, .key_size = 17, .value_size = 35, .conv_size = 3},
    {.key_heads = 1, .value_heads = 2, .key_size = 128, .value_size = 128, .conv_size = 4},
    {.key_heads = 2, .value_heads = 6, .key_size = 12, .value_size = 20, .conv_size = 4, .in_turn = true},
    {.key_heads = 3, .value_heads = 3, .key_size = 33, .value_size = 64, .conv_size = 7},
    {.key_heads = 2, .value_heads = 4, .key_size = 64, .value_size = 64, .conv_size = 4},
    {.key_heads = 1, .value_heads = 1, .key_size = 200, .value_size = 40, .conv_size = 4},
    {.key_heads = 1, .value_heads = 2, .key_size = 256, .value_size = 96, .conv_size = 5},
    {.key_heads = 1, .value_heads = 1, .key_size = 1, .value_size = 1, .conv_size = 2, .decays_rows = true},
    {.key_heads = 4, .value_heads = 4, .key_size = 12, .value_size = 12, .conv_size = 4, .decays_rows = true},
    {.key_heads = 2, .value_heads = 4, .key_size = 17, .value_size = 35, .conv_size = 3, .decays_rows = true},
    {.key_heads = 2,
     .value_heads = 2,
     .key_size = 128,
     .value_size = 128,
     .conv_size = 4,
     .decays_rows = true},
    {.key_heads = 3, .value_heads = 3, .key_size = 64, .value_size = 64, .conv_size = 4, .decays_rows = true},
    {.key_heads = 1,
     .value_heads = 1,
     .key_size = 200,
     .value_size = 40,
     .conv_size = 4,
     .decays_rows = true},
    {.key_heads = 1,
     .value_heads = 1,
     .key_size = 256,
     .value_size = 96,
     .conv_size = 5,
     .decays_rows = true}};

inline std::string text_of(const DeltaNetShape& shape) {
  return fmt::format("{} key heads of {}, {} value heads of {}{}, {} inputs{}", shape.key_heads,
                     shape.key_size, shape.value_heads, shape.value_size, shape.in_turn ? " in turn" : "",
                     shape.conv_size, shape.decays_rows ? ", decays of rows" : "");
}

/// Columns of a token's betas and alphas: DeltaRuleArgs::gates, and behind them its alphas if rows decay.
inline int64_t gates_of(const DeltaNetShape& shape) {
  return int64_t{shape.value_heads} + shape.alphas();
}

/// Sets the gates, and the alphas of decays of rows, to the columns of a tensor.
inline void set_gates(DeltaRuleArgs& args, Tensor all) {
  args.gates = args.alphas = all;
  if (!args.shape.decays_rows) return void(args.alphas = {});
  args.gates.cols = args.shape.value_heads;
  args.alphas.cols -= args.gates.cols;
  args.alphas.data = args.alphas.f32() + args.gates.cols;
}

/// The weights of a layer, random.
struct DeltaWeights {
  explicit DeltaWeights(const DeltaNetShape& of)
      : shape(of),
        conv(normal_values(int64_t{of.conv_size} * of.channels(), 1, 0.5f)),
        dt_bias(normal_values(of.alphas(), 2)),
        decay(normal_values(of.value_heads, 3)) {
    for (float& value : decay)
      value = -std::abs(value) - 0.01f;
  }

  DeltaNetShape shape;
  std::vector<float> conv, dt_bias, decay;
};

/// The outputs of delta_conv() and delta_rule().
struct DeltaOutputs {
  std::vector<float> qkv, values;
};

/// The largest NMSE allowed for each.
struct DeltaLimits {
  double conv, rule;
};

inline std::vector<float> rows_of(const std::vector<float>& all, int64_t cols, int64_t first, int64_t count) {
  return {all.begin() + first * cols, all.begin() + (first + count) * cols};
}

/// Runs steps one after the other; in each, sequence s of all brings queries[s] tokens. run(sequences, x [tokens, channels], gates
/// [tokens, gates_of()]) returns the outputs of one step.
template <class Run>
void expect_delta_reference(const DeltaWeights& weights, const std::vector<std::vector<int32_t>>& steps,
                            const DeltaLimits& limits, const Run& run) {
  using reference::Matrix;
  const DeltaNetShape& shape = weights.shape;
  std::vector<reference::DeltaState> states(steps.front().size());
  std::vector<int32_t> contexts(states.size());
  for (const std::vector<int32_t>& queries : steps) {
    std::vector<SequenceShape> sequences;
    int64_t tokens = 0;
    for (size_t s = 0; s < queries.size(); ++s) {
      contexts[s] += queries[s];
      sequences.push_back({contexts[s], queries[s]});
      tokens += queries[s];
    }
    const auto seed = static_cast<uint64_t>(tokens);
    const std::vector<float> x = normal_values(tokens * shape.channels(), 10 + seed);
    const std::vector<float> gates = normal_values(tokens * gates_of(shape), 20 + seed);
    const DeltaOutputs out = run(sequences, x, gates);
    std::vector<double> expected_qkv, expected_values;
    int64_t first = 0;
    for (size_t s = 0; s < queries.size(); ++s) {
      const int64_t count = queries[s];
      const auto matrix = [&](const std::vector<float>& of, int64_t cols) {
        return reference::to_matrix(rows_of(of, cols, first, count), count, cols);
      };
      const Matrix qkv = reference::delta_conv(matrix(x, shape.channels()), shape, weights.conv, states[s]);
      const Matrix values = reference::delta_rule(qkv, matrix(gates, gates_of(shape)), shape, weights.dt_bias,
                                                  weights.decay, states[s]);
      expected_qkv.insert(expected_qkv.end(), qkv.data.begin(), qkv.data.end());
      expected_values.insert(expected_values.end(), values.data.begin(), values.data.end());
      first += count;
    }
    EXPECT_LE(nmse(out.qkv, expected_qkv), limits.conv) << text_of(shape);
    EXPECT_LE(nmse(out.values, expected_values), limits.rule) << text_of(shape);
  }
}

/// Checks memory that held NaN: slots of no sequence are unchanged, and slots of sequences have all their elements.
inline void expect_states_of(const std::vector<int32_t>& slots, const DeltaNetShape& shape,
                             const std::vector<float>& conv, const std::vector<float>& delta) {
  const auto expect = [&](const std::vector<float>& states, int64_t size) {
    for (int64_t slot = 0; slot < std::ssize(states) / size; ++slot) {
      const bool is_used = std::ranges::count(slots, slot) > 0;
      for (const float value : rows_of(states, size, slot, 1))
        EXPECT_EQ(std::isnan(value), !is_used) << text_of(shape) << ", slot " << slot;
    }
  };
  expect(conv, shape.conv_state());
  expect(delta, shape.delta_state());
}

}  // namespace minfer::test
