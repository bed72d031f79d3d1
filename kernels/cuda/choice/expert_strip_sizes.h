#pragma once

#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/weights/weight_layout.h"

/// The shared memory of expert_strip.cuh. It decides how many routes that kernel takes at a time.
namespace minfer::cuda {

/// The ring for the next tiles of a block's warps.
constexpr int64_t expert_ring_bytes(DType type) {
  constexpr int64_t kWarps = kHasSmallBlocks ? 8 : 16, kStages = 2;
  return kWarps * kStages * tile_bytes(type);
}

/// x of eight routes with 256 columns.
constexpr int64_t expert_operand_bytes(DType type) {
  switch (type) {
    case DType::q4_0:
      return 4688;
    case DType::q8_0:
      return 4432;
    case DType::q4_k:
    case DType::q5_k:
      return 4928;
    case DType::q6_k:
      return 5200;
    case DType::mxfp4:
      return 4240;
    default:  // fp8
      return 4208;
  }
}

/// The groups of eight routes whose x fits beside the tiles.
constexpr int32_t expert_slots(DType type, int64_t cols, int64_t shared_bytes) {
  return static_cast<int32_t>((shared_bytes - expert_ring_bytes(type)) /
                              (tiles_of(cols) * expert_operand_bytes(type)));
}

}  // namespace minfer::cuda
