#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/op_args.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

/// Steps of kept hidden states against a map by slot and position, for any implementation.
namespace minfer::test {

/// A step: sequences with their slots (-1: padding), and whether they have rows of their own to see.
struct HiddenStep {
  std::vector<SequenceShape> sequences;
  std::vector<int32_t> slots;
  bool has_x = true;
};

/// A prompt longer than the ring, decoding beside it, drafts whose positions come again, a sequence that begins in a used slot.
inline std::vector<HiddenStep> hidden_steps() {
  constexpr int32_t kLong = HiddenRing::kRows + 7;
  return {{{{kLong, kLong}, {3, 3}}, {2, 0}},
          {{{4, 1}, {kLong + 1, 1}}, {0, 2}},
          {{{kLong + 2, 1}, {5, 1}}, {2, 0}, false},
          {{{kLong + 3, 1}, {6, 1}}, {2, 0}, false},
          {{{kLong + 2, 1}, {8, 4}, {1, 1}}, {2, 0, 3}},
          {{{kLong + 3 * HiddenRing::kRows, 3 * HiddenRing::kRows - 2}, {2, 2}}, {2, 0}},
          {{{3, 1}, {2, 1}}, {0, 3}}};
}

/// run(step, x, cols) reads, then keeps, and returns what it read: [tokens, cols].
inline void expect_hidden_steps(
    int64_t cols,
    const std::function<std::vector<float>(const HiddenStep&, const std::vector<float>&)>& run) {
  std::map<std::pair<int32_t, int32_t>, std::vector<float>> kept;
  uint64_t seed = 1;
  for (const HiddenStep& step : hidden_steps()) {
    int64_t tokens = 0;
    for (const SequenceShape& sequence : step.sequences)
      tokens += sequence.queries;
    std::vector<float> x = normal_values(tokens * cols, ++seed), expected;
    if (seed == 3) x[static_cast<size_t>(cols) / 2] = std::numeric_limits<float>::quiet_NaN();
    const auto row_of = [&](int64_t row) {
      return std::vector<float>(x.begin() + row * cols, x.begin() + (row + 1) * cols);
    };
    int64_t row = 0;
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      const auto [context, queries] = step.sequences[s];
      for (int32_t i = 0; i < queries; ++i, ++row) {
        const int32_t position = context - queries + i;
        std::vector<float> previous(static_cast<size_t>(cols));
        if (position > 0)
          previous = step.has_x && i > 0 ? row_of(row - 1) : kept.at({step.slots[s], position - 1});
        for (float& value : previous)
          value = std::isfinite(value) ? value : 0.0f;
        expected.insert(expected.end(), previous.begin(), previous.end());
      }
      for (int32_t i = 0; i < queries; ++i)
        kept[{step.slots[s], context - queries + i}] = row_of(row - queries + i);
    }
    EXPECT_EQ(run(step, x), expected) << fmt::format("{} columns, step {}", cols, seed - 1);
  }
}

}  // namespace minfer::test
