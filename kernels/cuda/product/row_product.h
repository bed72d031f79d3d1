#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// A product with f32 or f16 weights in f32 arithmetic, weights and x exactly as they are. Any shape and
/// number of tokens; made for few.
void row_product(Launch& launch, const Product& product);

}  // namespace minfer::cuda
