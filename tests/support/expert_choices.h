#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op_args.h"
#include "tests/support/random_data.h"

namespace minfer::test {

/// A way to choose experts, and how many of how many.
struct ChoiceCase {
  int64_t experts;
  int32_t used;
  ExpertChoice choice;
  bool has_bias;

  /// One for each expert, close to the differences between scores, so that it decides; empty if there is none.
  std::vector<float> bias() const {
    return has_bias ? normal_values(experts, 17, 0.2f) : std::vector<float>();
  }
};

/// The choices of GLM-4.5 and Kimi K2, DeepSeek-V3, DeepSeek-V2, ERNIE 4.5, Llama 4; and shapes that do not fill a warp.
inline std::vector<ChoiceCase> choice_cases() {
  constexpr ExpertScore kSoftmax = ExpertScore::softmax, kSigmoid = ExpertScore::sigmoid;
  return {
      {128, 8, {.score = kSigmoid}, true},
      {384, 8, {.score = kSigmoid, .scale = 2.5f}, true},
      {256, 8, {.score = kSigmoid, .scale = 2.5f, .groups = 8, .groups_used = 4}, true},
      {160, 6, {.normalise = false, .scale = 16.0f, .groups = 8, .groups_used = 3, .group_best = 1}, false},
      {64, 6, {.score = kSoftmax}, true},
      {16, 1, {.score = kSigmoid, .normalise = false}, false},
      {1, 1, {.score = kSigmoid, .normalise = false}, false},
      {60, 4, {.score = kSigmoid, .groups = 5, .groups_used = 1}, false},
      {64, 3, {.groups = 32, .groups_used = 2}, true},
      {33, 33, {.score = kSigmoid, .groups = 3, .groups_used = 3, .group_best = 1}, true}};
}

/// Choices that no backend accepts.
inline std::vector<ChoiceCase> refused_choices() {
  return {{8, 9, {}, false},
          {8, 0, {}, false},
          {8, 2, {.groups = 3}, false},
          {8, 2, {.groups = 0}, false},
          {66, 2, {.groups = 33}, false},
          {8, 2, {.groups = 4, .groups_used = 5}, false},
          {8, 2, {.groups = 4, .groups_used = 0}, false},
          {8, 3, {.groups = 4, .groups_used = 1}, false},
          {8, 2, {.groups = 8, .groups_used = 4}, false},
          {8, 2, {.groups = 4, .groups_used = 4, .group_best = 3}, false}};
}

}  // namespace minfer::test
