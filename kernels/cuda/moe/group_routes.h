#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/tensor_view.h"

/// What surrounds the products of experts. A route is one of the experts_used choices of a token: route
/// token * experts_used + rank.
namespace minfer::cuda {

/// Routes of one expert that are multiplied together: routes[first], ..., routes[first + count - 1].
struct ExpertBatch {
  int32_t expert;
  int32_t first;
  int32_t count;
};

/// Device memory that group_routes() fills.
struct RouteGroups {
  ExpertBatch* batches = nullptr;
  int32_t* num_batches = nullptr;
  int32_t* routes = nullptr;  ///< [num_routes] those of one expert side by side
};

/// The most batches of up to `batch_routes` routes that `num_routes` routes of `experts` experts can make.
constexpr int32_t most_batches(int32_t num_routes, int32_t experts, int32_t batch_routes) {
  const int32_t most = num_routes / batch_routes + experts;
  return most < num_routes ? most : num_routes;
}

/// Sorts routes by expert. expert_ids [num_routes].
void group_routes(Launch& launch, const int32_t* expert_ids, int32_t num_routes, int32_t experts,
                  int32_t batch_routes, const RouteGroups& groups);

/// out[t] += sum over j in order of weights[t, j] * products[t * used + j], or = instead of +=; products [routes, out.cols]
/// f32, out f32.
void combine_routes(Launch& launch, const float* products, const float* weights, int32_t used,
                    const Tensor& out, bool add_to_out);

}  // namespace minfer::cuda
