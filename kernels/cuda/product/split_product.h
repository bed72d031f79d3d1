#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// Whether split_product() takes the sizes and addresses: K a multiple of 8, x's rows 16 bytes aligned.
bool is_splittable(const Product& product);
/// A product with f32 weights and x in bf16, of many tokens, as exact as sums in f32: each weight is the sum of three bf16.
void split_product(Launch& launch, const Product& product);

}  // namespace minfer::cuda
