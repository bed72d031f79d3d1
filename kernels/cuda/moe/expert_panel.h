#pragma once

#include <cstdint>

#include "kernels/cuda/moe/moe_product.h"

/// Quantised experts with few routes each (expert_panel.cuh).
namespace minfer::cuda {

/// Routes of a batch that expert_panel_product() takes, 8 or 16; 0: none, since it has no kernel for the type, or x of so many columns does
/// not fit into the shared memory of a block beside what is on its way.
int32_t expert_panel_routes(DType type, int64_t cols);
/// Common quantised types, x bf16 in rows of whole 16-byte pieces; grouped, in batches of up to expert_panel_routes(). kMatrices: 2 for gate
/// and up; see kernels/cuda/instances.cmake.
template <int kMatrices>
void expert_panel_product(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
