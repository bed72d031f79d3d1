#pragma once

#include "kernels/cuda/moe/routes/moe_product.h"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/element.cuh"

/// Shared by the kernels of MoeProduct: the routes that they take, and the outputs that they make of sums.
namespace minfer::cuda {

/// Routes of one expert that are multiplied together.
struct ExpertBatch {
  int32_t expert;
  int32_t first;  ///< index among the sorted routes; without groups, the route
  int32_t count;
};

__device__ __forceinline__ BatchCounts num_batches(const MoeProduct& p) {
  return p.groups.routes != nullptr ? *p.groups.num_batches : BatchCounts{p.num_routes, 0};
}
__device__ __forceinline__ ExpertBatch batch_at(const MoeProduct& p, int32_t i) {
  if (p.groups.routes == nullptr) return {p.expert_ids[i], i, 1};
  const ExpertRoutes of = p.groups.batches[i];
  const int32_t done = (i - of.first_batch) * p.groups.batch_routes;
  return {of.expert, of.first + done, min(p.groups.batch_routes, of.count - done)};
}
__device__ __forceinline__ int32_t route_at(const MoeProduct& p, const ExpertBatch& batch, int32_t i) {
  return p.groups.routes != nullptr ? p.groups.routes[batch.first + i] : batch.first;
}

/// An element of a route's product with `up`, from the sums and biases of its row. kExact: see Gate.
template <bool kExact>
__device__ __forceinline__ float gated_biased(const MoeProduct& p, int32_t route, float bias, float up_bias,
                                              float gate, float up) {
  const float weight = p.input_weights != nullptr ? p.input_weights[route] : 1.0f;
  return Gate<kExact>(p.activation)(fmaf(weight, gate, bias), fmaf(weight, up, up_bias));
}
template <bool kExact>
__device__ __forceinline__ float gated(const MoeProduct& p, int32_t route, int32_t expert, int32_t row,
                                       float gate, float up) {
  const int64_t at = int64_t{expert} * p.rows + row;
  return gated_biased<kExact>(p, route, p.bias != nullptr ? p.bias[at] : 0.0f,
                              p.up_bias != nullptr ? p.up_bias[at] : 0.0f, gate, up);
}

__device__ __forceinline__ void store_route(const MoeProduct& p, int32_t route, int32_t row, float value) {
  const int64_t at = route * p.out_stride + row;
  if (p.out_is_f32) {
    static_cast<float*>(p.out)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(p.out)[at] = from_f32<__nv_bfloat16>(value);
  }
}

}  // namespace minfer::cuda
