#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See HeadLinearArgs. Weights of any type. If out is bf16 with more than 8 tokens: on tensor cores, with x (bf16 or f32)
/// and weights rounded to bf16. Otherwise in f32 arithmetic; with out f32, x is f32. Any sizes and number of tokens.
void head_product(Launch& launch, const HeadLinearArgs& args);

/// The two paths, one file each. The caller has checked the arguments.
void head_product_tiles(Launch& launch, const HeadLinearArgs& args);
void head_product_rows(Launch& launch, const HeadLinearArgs& args);

}  // namespace minfer::cuda
