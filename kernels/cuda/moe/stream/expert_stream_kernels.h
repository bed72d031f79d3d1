#pragma once

#include "kernels/cuda/moe/routes/moe_product.h"

/// The kernels behind expert_stream_product(), one source file for each type. x of their products is sorted, with x_stride elements a row.
namespace minfer::cuda {

template <DType type>
void launch_expert_tiles(Launch& launch, const MoeProduct& product);
void launch_bf16_experts(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
