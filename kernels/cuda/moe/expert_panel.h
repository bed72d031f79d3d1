#pragma once

#include <cstdint>

#include "kernels/cuda/moe/moe_product.h"

/// Quantised experts with few routes each (expert_panel.cuh).
namespace minfer::cuda {

/// What ExpertKernel::expert_panel takes, grouped in the batches of its choice. kMatrices: 2 for gate and up; see
/// kernels/cuda/instances.cmake.
template <int kMatrices>
void expert_panel_product(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
