#pragma once

#include <span>

#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// How fast cuBLASLt can be, to hold other kernels against: microseconds of a product (of types that Matmul takes) by the fastest of
/// the eight plans that it proposes first. The products, of one shape, are computed in turn, so that together
/// they may be larger than the L2. Not measured: what the first call of a plan costs.
double fastest_matmul_us(std::span<const Product> products);

}  // namespace minfer::cuda
