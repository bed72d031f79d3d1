#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/moe_product.h"
#include "kernels/cuda/moe/stream/expert_plan.h"
#include "kernels/cuda/product/stream/stream_plan.h"

/// Products of experts with many routes each, on Hopper's tensor cores.
namespace minfer::cuda {

/// Bytes of what a route multiplies, sorted by expert: whole columns of a stage.
constexpr int64_t sorted_row_bytes(int64_t cols) {
  return (cols + kStageColumns - 1) / kStageColumns * kStageColumns * 2;
}

/// Whether the kernels take it: x bf16, weights bf16 or quantised and not of a rare type, cols % 8 == 0, rows % 4 == 0 (bf16 gate and up:
/// 8), gate in front of up, all aligned as boxes of tensor maps and vectors of the output are. On a device with wgmma.
bool can_stream_experts(const MoeProduct& product);

/// `product`: with groups of 32, 64 or 128 routes a batch; x is brought into `sorted_x`, num_routes * sorted_row_bytes(cols) bytes, on the way.
void expert_stream_product(Launch& launch, const MoeProduct& product, void* sorted_x);

}  // namespace minfer::cuda
