#pragma once

#include <cstdint>

#include "kernels/cuda/moe/routes/moe_product.h"

/// Quantised experts with few routes each (expert_strip.cuh).
namespace minfer::cuda {

/// Takes what ExpertKernel::expert_strip takes, grouped in the batches of its choice. kMatrices: 2 for gate and
/// up; see kernels/cuda/instances.cmake.
template <int kMatrices>
void expert_strip_product(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
