#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cuda/moe/routes/group_routes.h"
#include "kernels/dtype.h"

namespace minfer::cuda {

/// out[route] = W[e] x[route / routes_per_x], where e is the route's expert; with `up`:
/// activation(W[e] x + bias[e], up[e] x + up_bias[e]), for x times input_weights[route].
struct MoeProduct {
  const void* weight = nullptr;                      ///< experts x [rows, cols] in their device layout
  const void* up = nullptr;                          ///< the same, or null
  DType dtype = DType::f32;                          ///< of weight and up
  GateActivation activation = GateActivation::silu;  ///< of a product with `up`
  const float* bias = nullptr;     ///< experts x [rows], or null; for a product with `up` or route_weights
  const float* up_bias = nullptr;  ///< the same, for a product with `up`
  const float* input_weights = nullptr;  ///< [num_routes] or null: 1; for a product with `up`
  int64_t matrix_bytes = 0;              ///< from one expert to the next
  int32_t rows = 0;
  int32_t cols = 0;
  const void* x = nullptr;  ///< bf16 or f32 rows, x_stride elements apart
  int64_t x_stride = 0;
  int32_t routes_per_x = 1;
  bool x_is_f32 = false;
  void* out = nullptr;  ///< [routes, rows] bf16 or f32, rows out_stride elements apart
  int64_t out_stride = 0;
  bool out_is_f32 = false;

  /// If each route is alone, without `up`: out[route / routes_per_out] += (or =) the sum of (product + bias[e]) times the route's weight.
  const float* route_weights = nullptr;
  int32_t routes_per_out = 1;
  bool add_to_out = true;

  const int32_t* expert_ids = nullptr;  ///< [num_routes]
  int32_t num_routes = 0;
  int32_t experts = 0;
  /// How routes share a read of the weights. Without groups, each route is multiplied alone.
  RouteGroups groups = {};

  bool grouped() const { return groups.routes != nullptr; }
};

/// On tensor cores: bf16 weights with cols % 8 == 0 or quantised weights with cols % 4 == 0, x bf16 with 16-byte aligned
/// rows; `token_tiles` (1 or 4) times 8 routes a batch. kMatrices: 2 for gate and up; see kernels/cuda/instances.cmake.
template <int kMatrices>
void moe_strip_product(Launch& launch, const MoeProduct& product, int token_tiles);
/// Each route alone: quantised weights, x as in moe_strip_product().
void moe_vector_product(Launch& launch, const MoeProduct& product);
/// The same for bf16 weights.
void moe_bf16_vector_product(Launch& launch, const MoeProduct& product);
/// In f32 arithmetic: x f32, or weights that are not quantised or of a rare type; kRowBatchRoutes routes a batch.
void moe_row_product(Launch& launch, const MoeProduct& product);
inline constexpr int kRowBatchRoutes = 8;

}  // namespace minfer::cuda
