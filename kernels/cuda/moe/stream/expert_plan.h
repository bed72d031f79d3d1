#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace minfer::cuda {

/// Routes of one expert that expert_stream_product() multiplies together, 32, 64 or 128; 0: the kernels for few routes are faster. With common
/// quantised weights expert_panel_product() is faster up to some more routes, and is asked first.
constexpr int32_t expert_token_tile(DType weights, int64_t routes, int64_t experts) {
  // Of an expert in the mean. Quantised weights become operands first, for however few routes.
  const int64_t least = weights == DType::bf16 ? 1 : 4;
  constexpr int64_t kRoutesOfMiddleTile = 16, kRoutesOfLargeTile = 64;
  if (routes < least * experts) return 0;
  if (routes < kRoutesOfMiddleTile * experts) return 32;
  return routes < kRoutesOfLargeTile * experts ? 64 : 128;
}

}  // namespace minfer::cuda
