#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/reference/short_conv.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

/// Steps of a gated short convolution against double precision, for any implementation.
namespace minfer::test {

/// A layer's weights, random.
struct ShortConvLayer {
  ShortConvLayer(int64_t num_channels, int64_t num_inputs, bool has_bias)
      : channels(num_channels),
        size(num_inputs),
        weight(normal_values(num_inputs * num_channels, 1, 0.5f)),
        bias(has_bias ? normal_values(num_channels, 2) : std::vector<float>()) {}

  int64_t state_size() const { return (size - 1) * channels; }
  std::string text() const {
    return fmt::format("{} channels, {} inputs{}", channels, size, bias.empty() ? "" : ", a bias");
  }

  int64_t channels, size;
  std::vector<float> weight, bias;  ///< [size, channels], [channels] or empty
};

/// Channels below, at and above the number for threads and blocks; the fewest and the most possible inputs.
inline std::vector<ShortConvLayer> short_conv_layers() {
  return {{1, 2, false},  {32, 3, true},   {63, 4, false}, {64, 16, true},
          {65, 3, false}, {128, 3, false}, {129, 5, true}, {1000, 4, false}};
}

/// Runs steps one after the other; in each, sequence s of all brings queries[s] tokens. run(sequences, x [tokens, 3 channels]) returns
/// the output of one step.
template <class Run>
void expect_short_conv_reference(const ShortConvLayer& layer, const std::vector<std::vector<int32_t>>& steps,
                                 double limit, const Run& run) {
  std::vector<std::vector<double>> states(steps.front().size());
  std::vector<int32_t> contexts(states.size());
  for (const std::vector<int32_t>& queries : steps) {
    std::vector<SequenceShape> sequences;
    int64_t tokens = 0;
    for (size_t s = 0; s < queries.size(); ++s) {
      contexts[s] += queries[s];
      sequences.push_back({contexts[s], queries[s]});
      tokens += queries[s];
    }
    const std::vector<float> x =
        normal_values(tokens * 3 * layer.channels, 10 + static_cast<uint64_t>(tokens));
    const std::vector<float> out = run(sequences, x);
    std::vector<double> expected;
    auto row = x.begin();
    for (size_t s = 0; s < queries.size(); ++s) {
      const auto end = row + queries[s] * 3 * layer.channels;
      const reference::Matrix of_sequence =
          reference::short_conv(reference::to_matrix({row, end}, queries[s], 3 * layer.channels),
                                layer.weight, layer.bias, states[s]);
      expected.insert(expected.end(), of_sequence.data.begin(), of_sequence.data.end());
      row = end;
    }
    EXPECT_LE(nmse(out, expected), limit) << layer.text();
  }
}

/// Checks memory that held NaN: slots of no sequence are unchanged, and slots of sequences have all their elements.
inline void expect_short_conv_states(const std::vector<int32_t>& slots, const ShortConvLayer& layer,
                                     const std::vector<float>& states) {
  for (int64_t i = 0; i < std::ssize(states); ++i) {
    const bool is_used = std::ranges::count(slots, i / layer.state_size()) > 0;
    EXPECT_EQ(std::isnan(states[static_cast<size_t>(i)]), !is_used) << layer.text() << ", " << i;
  }
}

}  // namespace minfer::test
