#pragma once

#include "kernels/cuda/moe/routes/moe_product.h"

/// The kernels behind expert_stream_product(), a source file a type: of products whose x is sorted, x_stride elements a row.
namespace minfer::cuda {

template <DType type>
void launch_expert_tiles(Launch& launch, const MoeProduct& product);
void launch_bf16_experts(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
