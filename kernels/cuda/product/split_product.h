#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// A product with f32 weights and x in bf16, of many tokens, as exact as sums in f32: each weight is the sum of three bf16. K a multiple of
/// 8, x's rows and the weights 16 bytes aligned.
void split_product(Launch& launch, const Product& product);

}  // namespace minfer::cuda
