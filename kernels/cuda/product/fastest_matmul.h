#pragma once

#include <span>

#include "kernels/cuda/product/matmul.h"

namespace minfer::cuda {

/// The plan that fastest_matmul_us() (matmul_search.h) finds, and its time.
struct FastestMatmul {
  Matmul::Plan plan;
  double us;
};
/// `products` as there. Throws DeviceError if cuBLASLt proposes no plan.
FastestMatmul fastest_matmul(Matmul& matmul, std::span<const Product> products);

}  // namespace minfer::cuda
