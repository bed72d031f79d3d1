#pragma once

#include <cstdint>

#include "kernels/cuda/moe/moe_slots.h"
#include "kernels/dtype.h"

namespace minfer::cuda {

/// out[slot] = W[e] x[slot / slots_per_x] with e the slot's expert; with `up`: silu(W[e] x) * (up[e] x).
struct MoeProduct {
  const void* weight = nullptr;  ///< experts x [rows, cols] in their device layout
  const void* up = nullptr;      ///< the same, or null
  DType dtype = DType::f32;      ///< of weight and up
  int64_t matrix_bytes = 0;      ///< from one expert to the next
  int32_t rows = 0;
  int32_t cols = 0;
  const void* x = nullptr;  ///< bf16 or f32 rows, x_stride elements apart
  int64_t x_stride = 0;
  int32_t slots_per_x = 1;
  bool x_is_f32 = false;
  void* out = nullptr;  ///< [slots, rows] bf16 or f32, rows out_stride elements apart
  int64_t out_stride = 0;
  bool out_is_f32 = false;

  /// moe_vector_product() without `up`: out[slot / slots_per_out] += the slots' products times their weights.
  const float* slot_weights = nullptr;
  int32_t slots_per_out = 1;

  const int32_t* expert_ids = nullptr;  ///< [num_slots]
  int32_t num_slots = 0;
  int32_t experts = 0;
  /// How slots share the reading of weights. Without it each is multiplied alone.
  SlotGroups groups = {};

  bool grouped() const { return groups.slots != nullptr; }
};

#ifdef __CUDACC__

__device__ __forceinline__ int32_t num_batches(const MoeProduct& p) {
  return p.groups.slots != nullptr ? *p.groups.num_batches : p.num_slots;
}
__device__ __forceinline__ ExpertBatch batch_at(const MoeProduct& p, int32_t i) {
  if (p.groups.slots != nullptr) return p.groups.batches[i];
  return {p.expert_ids[i], i, 1};
}
__device__ __forceinline__ int32_t slot_at(const MoeProduct& p, const ExpertBatch& batch, int32_t i) {
  return p.groups.slots != nullptr ? p.groups.slots[batch.first + i] : batch.first;
}

#endif

/// On tensor cores: bf16 weights with cols % 8 == 0 or quantised ones with cols % 4 == 0, x bf16 with 16-byte
/// aligned rows; `token_tiles` (1 or 4) times 8 slots a batch.
void moe_panel_product(Launch& launch, const MoeProduct& product, int token_tiles);
/// Each slot alone: quantised weights, x as above.
void moe_vector_product(Launch& launch, const MoeProduct& product);
/// In f32 arithmetic: x f32, or weights not quantised; kRowBatchSlots slots a batch.
void moe_row_product(Launch& launch, const MoeProduct& product);
inline constexpr int kRowBatchSlots = 8;

}  // namespace minfer::cuda
