#pragma once

#include <cstdint>

#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

/// The steps around the products of experts. A route is one of the experts_used choices of a token:
/// route token * experts_used + rank.
namespace minfer::cuda {

/// The routes of an expert: routes[first], ..., routes[first + count - 1]. They are multiplied in batches from
/// number first_batch on. With turns, an entry has the routes of one batch, whose number is first_batch.
struct alignas(16) ExpertRoutes {
  int32_t expert;
  int32_t first;
  int32_t count;
  int32_t first_batch;
};

struct BatchCounts {
  int32_t all;
  int32_t large;  ///< with more than turn_routes routes; 0 without turns
  bool operator==(const BatchCounts&) const = default;
};

/// Device memory that group_routes() fills.
struct RouteGroups {
  ExpertRoutes* batches = nullptr;  ///< for each batch, the routes of its expert
  BatchCounts* num_batches = nullptr;
  int32_t* routes = nullptr;  ///< [num_routes] routes of one expert side by side, in order
  int32_t batch_routes = 1;   ///< the most routes of a batch
  /// Unless 0: batches with more routes than this and the other batches alternate, the larger first; then come those left over.
  int32_t turn_routes = 0;
  /// The groups are complete before a kernel's begin_kernel(), since a kernel in front of it has waited for group_routes().
  bool are_complete = false;
};

/// The most routes that are grouped at a time.
inline constexpr int32_t kMostGroupedRoutes = 16384;

/// The most batches of up to `batch_routes` routes that `num_routes` routes of `experts` experts can form.
constexpr int32_t most_batches(int32_t num_routes, int32_t experts, int32_t batch_routes) {
  const int32_t most = num_routes / batch_routes + experts;
  return most < num_routes ? most : num_routes;
}

/// Sorts routes by expert. expert_ids [num_routes], at most kMostGroupedRoutes.
void group_routes(Launch& launch, const int32_t* expert_ids, int32_t num_routes, int32_t experts,
                  const RouteGroups& groups);

/// The operands of the sorted routes: to[i] = x[groups.routes[i] / routes_per_x], followed by zeros, times weights[groups.routes[i]]
/// unless weights is null. bf16; rows of x, and of `to` [num_routes, to.stride], consist of whole 16-byte pieces.
void gather_routes(Launch& launch, const Tensor& x, int32_t routes_per_x, const RouteGroups& groups,
                   const float* weights, const Tensor& to);

/// The sum over the routes of each token.
struct RouteSum {
  Tensor products;                      ///< [tokens * used, out.cols] f32 or bf16, rows side by side
  const int32_t* expert_ids = nullptr;  ///< [tokens, used]
  const float* weights = nullptr;       ///< [tokens, used]
  int32_t used = 0;
  const float* bias = nullptr;  ///< [experts, out.cols] or null
  Tensor out;                   ///< [tokens, cols] f32
  bool add_to_out = true;
};

/// out[t] += sum over j in order of weights[t, j] * (products[t * used + j] + bias[expert_ids[t, j]]), or = instead of +=.
void combine_routes(Launch& launch, const RouteSum& sum);

}  // namespace minfer::cuda
