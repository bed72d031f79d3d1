#pragma once

#include <cstdint>

#include "kernels/op_args.h"

namespace minfer::cuda {

/// out = x W^T + bias with one matrix: what LinearArgs is taken apart into.
struct Product {
  Weight weight;                ///< [N, K] in its device layout; `count` and further matrices are ignored
  Tensor x;                     ///< [tokens, K] bf16 or f32
  const float* bias = nullptr;  ///< [N] or null
  Tensor out;                   ///< [tokens, N] bf16 or f32
  bool add_to_out = false;      ///< out += instead of out =; `out` is f32
  FrontNorm norm = {};          ///< in front of x
};

}  // namespace minfer::cuda
