#pragma once

#include "kernels/op_args.h"

namespace minfer::cuda {

class Launch;

/// out = x W^T + bias with one matrix: LinearArgs is split into these.
struct Product {
  Weight weight;                ///< [N, K] in its device layout; `count` and further matrices are ignored
  Tensor x;                     ///< [tokens, K] bf16 or f32
  const float* bias = nullptr;  ///< [N] or null
  Tensor out;                   ///< [tokens, N] bf16 or f32
  bool add_to_out = false;      ///< out += instead of out =; `out` is f32
  FrontNorm norm = {};          ///< in front of x
};

/// In f32 arithmetic, with f32 or f16 weights: weights and x exactly as they are. Any shape and number of tokens; made for few.
void row_product(Launch& launch, const Product& product);
/// For many tokens, with f32 weights and x in bf16, as exact as sums in f32: each weight is the sum of three
/// bf16. K is a multiple of 8; x's rows and the weights are 16-byte aligned.
void split_product(Launch& launch, const Product& product);

}  // namespace minfer::cuda
