#pragma once

#include <string>
#include <vector>

#include "tests/reference/mamba.h"
#include "tests/support/delta_steps.h"

/// Steps of Mamba-2 against double precision, for any implementation.
namespace minfer::test {

/// Heads below, at and above whole lanes, columns of a block and rows of 16, 64 and 128; one, two and three heads a group.
inline const std::vector<DeltaNetShape> kMambaShapes{
    {.key_heads = 1, .value_heads = 1, .key_size = 1, .value_size = 1, .conv_size = 2},
    {.key_heads = 2, .value_heads = 6, .key_size = 20, .value_size = 12, .conv_size = 4},
    {.key_heads = 1, .value_heads = 3, .key_size = 17, .value_size = 35, .conv_size = 3},
    {.key_heads = 1, .value_heads = 4, .key_size = 128, .value_size = 64, .conv_size = 4},
    {.key_heads = 2, .value_heads = 4, .key_size = 128, .value_size = 80, .conv_size = 4},
    {.key_heads = 3, .value_heads = 3, .key_size = 65, .value_size = 33, .conv_size = 7},
    {.key_heads = 1, .value_heads = 2, .key_size = 64, .value_size = 32, .conv_size = 4},
    {.key_heads = 1, .value_heads = 1, .key_size = 256, .value_size = 40, .conv_size = 5}};

/// The weights of a layer, random; a small decay now and then, so that states last.
struct MambaWeights {
  explicit MambaWeights(const DeltaNetShape& of)
      : shape(of),
        conv(normal_values(int64_t{of.conv_size} * of.channels(), 1, 0.5f)),
        bias(normal_values(of.channels(), 2)),
        dt_bias(normal_values(of.value_heads, 3)),
        decay(normal_values(of.value_heads, 4)),
        skip(normal_values(of.value_heads, 5)) {
    for (float& value : decay)
      value = -std::abs(value) - 0.01f;
  }
  reference::MambaHeads heads() const { return {dt_bias, decay, skip, bias}; }

  DeltaNetShape shape;
  std::vector<float> conv, bias, dt_bias, decay, skip;
};

/// The columns of a token's row: gates, x, B and C, dt, as the product in front of Mamba-2 gives them.
inline int64_t mamba_columns(const DeltaNetShape& shape) {
  return shape.value_columns() + shape.channels() + shape.value_heads;
}

/// The outputs of the convolution and the scan.
struct MambaOutputs {
  std::vector<float> xbc, values;
};

/// Runs steps one after the other; in each, sequence s of all brings queries[s] tokens. run(sequences, rows [tokens, mamba_columns])
/// returns the outputs of one step.
template <class Run>
void expect_mamba_reference(const MambaWeights& weights, const std::vector<std::vector<int32_t>>& steps,
                            double limit, const Run& run) {
  using reference::Matrix;
  const DeltaNetShape& shape = weights.shape;
  const int64_t columns = mamba_columns(shape);
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
    const std::vector<float> rows = normal_values(tokens * columns, 10 + static_cast<uint64_t>(tokens));
    const MambaOutputs out = run(sequences, rows);
    std::vector<double> expected_xbc, expected_values;
    int64_t first = 0;
    for (size_t s = 0; s < queries.size(); ++s) {
      const auto part = [&](int64_t column, int64_t count) {
        Matrix matrix(queries[s], count);
        for (int64_t t = 0; t < queries[s]; ++t) {
          for (int64_t c = 0; c < count; ++c)
            matrix.at(t, c) =
                static_cast<double>(rows[static_cast<size_t>((first + t) * columns + column + c)]);
        }
        return matrix;
      };
      const int64_t inner = shape.value_columns();
      const Matrix xbc = reference::mamba_conv(part(inner, shape.channels()), shape, weights.conv,
                                               weights.heads(), states[s]);
      const Matrix values = reference::mamba_scan(xbc, part(inner + shape.channels(), shape.value_heads),
                                                  part(0, inner), shape, weights.heads(), states[s]);
      expected_xbc.insert(expected_xbc.end(), xbc.data.begin(), xbc.data.end());
      expected_values.insert(expected_values.end(), values.data.begin(), values.data.end());
      first += queries[s];
    }
    EXPECT_LE(nmse(out.xbc, expected_xbc), limit) << text_of(shape);
    EXPECT_LE(nmse(out.values, expected_values), limit) << text_of(shape);
  }
}

}  // namespace minfer::test
