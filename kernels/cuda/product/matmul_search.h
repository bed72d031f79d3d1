#pragma once

#include <span>

#include "kernels/cuda/product/product.h"

namespace minfer::cuda {

/// The speed of cuBLASLt, a yardstick for other kernels: microseconds of a product (of types that Matmul takes)
/// by the fastest of the eight plans that it proposes first. The products have one shape and are computed in
/// turn, so that together they may be larger than the L2. The cost of a plan's first call is not measured.
double fastest_matmul_us(std::span<const Product> products);

}  // namespace minfer::cuda
