#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See HeadLinearArgs. Weights of any type. Out bf16 of more than 8 tokens: on tensor cores, x (bf16 or f32) and weights rounded to bf16.
/// Else in f32 arithmetic; out f32: x f32. Any sizes and number of tokens.
void head_product(Launch& launch, const HeadLinearArgs& args);

/// Both paths, one a file. Arguments are checked already.
void head_product_tiles(Launch& launch, const HeadLinearArgs& args);
void head_product_rows(Launch& launch, const HeadLinearArgs& args);

}  // namespace minfer::cuda
