#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/random_data.h"

/// Inputs of choose_keys(), and what it gives by them in double precision.
namespace minfer::test {

struct KeyChoiceShape {
  int32_t heads = 5;
  int32_t key_size = 24;
  int32_t most = 16;
  /// Elements are small whole numbers. Scores are exact in any order then, and many are equal.
  bool whole_numbers = false;

  int64_t q_cols() const { return int64_t{heads} * key_size; }
  /// A power of two, so that it does not round.
  float scale() const { return std::exp2(std::round(-0.5f * std::log2(static_cast<float>(q_cols())))); }
  std::string text() const {
    return fmt::format("{} heads of {}, {} keys{}", heads, key_size, most,
                       whole_numbers ? ", whole numbers" : "");
  }
};

/// A sequence's data, whatever the step and the batch.
struct KeyChoiceData {
  std::vector<float> q, weights, keys;

  KeyChoiceData(const KeyChoiceShape& shape, int32_t context, uint64_t seed)
      : q(values(shape, context * shape.q_cols(), 3 * seed)),
        weights(values(shape, int64_t{context} * shape.heads, 3 * seed + 1)),
        keys(values(shape, int64_t{context} * shape.key_size, 3 * seed + 2)) {}

 private:
  static std::vector<float> values(const KeyChoiceShape& shape, int64_t count, uint64_t seed) {
    std::vector<float> all = normal_values(count, seed);
    for (float& value : all)
      if (shape.whole_numbers) value = std::clamp(std::round(value), -2.0f, 2.0f);
    return all;
  }
};

/// See ChooseKeysArgs: scores of the keys that a query sees. `q` and `weights`: of the query; `keys` [position + 1, key_size].
inline std::vector<double> key_scores(const KeyChoiceShape& shape, std::span<const float> q,
                                      std::span<const float> weights, std::span<const float> keys) {
  std::vector<double> scores;
  const auto size = static_cast<size_t>(shape.key_size);
  for (size_t j = 0; j < keys.size() / size; ++j) {
    double score = 0.0;
    for (size_t h = 0; h < static_cast<size_t>(shape.heads); ++h) {
      double dot = 0.0;
      for (size_t d = 0; d < size; ++d)
        dot += double{q[h * size + d]} * double{keys[j * size + d]};
      score += double{weights[h]} * std::max(dot, 0.0);
    }
    scores.push_back(score * double{shape.scale()});
  }
  return scores;
}

/// The positions with the largest scores, ascending; equal scores: the lower position.
inline std::vector<int32_t> best_keys(std::span<const double> scores, int32_t most) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(most));
  std::ranges::sort(order);
  return order;
}

/// Positions for a query: `most` of [0, position], ascending; none if these are no more than `most`.
inline std::vector<int32_t> random_choice(int32_t position, int32_t most, uint64_t seed) {
  if (position < most) return {};
  std::vector<int32_t> chosen = permutation(position + 1, seed + static_cast<uint64_t>(position));
  chosen.resize(static_cast<size_t>(most));
  std::ranges::sort(chosen);
  return chosen;
}

/// Empty if `chosen` are positions, ascending, of which none is more than `tolerance` worse than one that was left out; else what is wrong.
inline std::string objection_to(std::span<const int32_t> chosen, std::span<const double> scores,
                                double tolerance) {
  std::vector<bool> is_chosen(scores.size());
  int32_t previous = -1;
  double worst = INFINITY, best = -INFINITY;
  for (const int32_t position : chosen) {
    if (position <= previous || position >= std::ssize(scores))
      return fmt::format("position {} behind {} of {}", position, previous, scores.size());
    is_chosen[static_cast<size_t>(previous = position)] = true;
    worst = std::min(worst, scores[static_cast<size_t>(position)]);
  }
  for (size_t j = 0; j < scores.size(); ++j)
    if (!is_chosen[j]) best = std::max(best, scores[j]);
  return best > worst + tolerance ? fmt::format("chose {} and left {}", worst, best) : "";
}

}  // namespace minfer::test
