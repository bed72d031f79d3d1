#pragma once

#include <cstdint>

namespace minfer::cuda {

/// Routes of one expert that expert_stream_product() multiplies together, 64 or 128; 0: the kernels for few routes are faster. With common
/// quantised weights expert_panel_product() is faster up to some more routes, and is asked first.
constexpr int32_t expert_token_tile(int64_t routes, int64_t experts) {
  constexpr int64_t kLeastRoutes = 8, kRoutesOfLargeTile = 64;  // of an expert in the mean
  if (routes < kLeastRoutes * experts) return 0;
  return routes < kRoutesOfLargeTile * experts ? 64 : 128;
}

}  // namespace minfer::cuda
