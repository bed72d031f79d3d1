#pragma once

#include <cstdint>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/routes/moe_product.h"

/// Products of experts with many routes each, on Hopper's tensor cores.
namespace minfer::cuda {

/// Bytes of a row of x, sorted by expert and padded to whole stages of columns.
constexpr int64_t sorted_row_bytes(int64_t cols) {
  return (cols + kStageColumns - 1) / kStageColumns * kStageColumns * 2;
}

/// Takes what ExpertKernel::stream takes, in batches of 32, 64 or 128. Gathers x in `sorted_x`: num_routes * sorted_row_bytes(cols) bytes.
void expert_stream_product(Launch& launch, const MoeProduct& product, void* sorted_x);

}  // namespace minfer::cuda
