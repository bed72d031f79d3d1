#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See HeadLinearArgs. Weights of any type. Out bf16: on tensor cores, x (bf16 or f32) and weights rounded to bf16. Out f32: x f32, in f32
/// arithmetic. Any sizes and number of tokens.
void head_product(Launch& launch, const HeadLinearArgs& args);

/// Both paths, one a file. Arguments are checked already.
void head_product_bf16(Launch& launch, const HeadLinearArgs& args);
void head_product_f32(Launch& launch, const HeadLinearArgs& args);

}  // namespace minfer::cuda
