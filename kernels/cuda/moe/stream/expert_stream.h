#pragma once

#include <cstdint>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/routes/moe_product.h"

/// Products of experts with many routes each, on Hopper's tensor cores.
namespace minfer::cuda {

/// Bytes of what a route multiplies, sorted by expert: whole columns of a stage.
constexpr int64_t sorted_row_bytes(int64_t cols) {
  return (cols + kStageColumns - 1) / kStageColumns * kStageColumns * 2;
}

/// `product`: what ExpertKernel::stream takes, with groups of 32, 64 or 128 routes a batch; x is brought into `sorted_x`, num_routes * sorted_row_bytes(cols) bytes, on the way.
void expert_stream_product(Launch& launch, const MoeProduct& product, void* sorted_x);

}  // namespace minfer::cuda
