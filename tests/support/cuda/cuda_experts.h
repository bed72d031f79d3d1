#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op_args.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"

/// Shared by tests of products of experts.
namespace minfer::test {

struct ExpertShape {
  int64_t experts;
  int32_t used;
  int64_t hidden;
  int64_t ffn;
};

inline StepLimits limits(const ExpertShape& shape, int64_t tokens) {
  StepLimits limits;
  limits.max_tokens = static_cast<int32_t>(tokens);
  limits.hidden_size = shape.hidden;
  limits.ffn_size = shape.ffn;
  limits.experts = static_cast<int32_t>(shape.experts);
  limits.experts_used = shape.used;
  return limits;
}

/// The experts of all tokens side by side, as moe_route() writes them.
inline std::vector<int32_t> experts_of(const std::vector<reference::ChosenExperts>& routes) {
  std::vector<int32_t> ids;
  for (const reference::ChosenExperts& route : routes)
    ids.insert(ids.end(), route.experts.begin(), route.experts.end());
  return ids;
}
inline std::vector<float> weights_of(const std::vector<reference::ChosenExperts>& routes) {
  std::vector<float> weights;
  for (const reference::ChosenExperts& route : routes) {
    for (const double weight : route.weights)
      weights.push_back(static_cast<float>(weight));
  }
  return weights;
}

/// A bias of `cols` elements for each expert in device memory; null if there are no values.
class CudaBiases {
 public:
  CudaBiases(const std::vector<float>& values, const ExpertShape& shape, int64_t cols)
      : values_(values.empty() ? std::vector<float>(1) : values),
        weight_{.data = values.empty() ? nullptr : values_.data(),
                .dtype = DType::f32,
                .rows = shape.experts,
                .cols = cols} {}
  const Weight& weight() const { return weight_; }

 private:
  CudaArray<float> values_;
  Weight weight_;
};

}  // namespace minfer::test
