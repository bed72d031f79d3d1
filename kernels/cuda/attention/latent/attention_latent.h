#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention/latent/latent_plan.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

struct LatentParams {
  const void* q;  ///< [tokens, heads, kLatentRow] bf16
  int64_t q_stride;
  void* out;  ///< [tokens, heads, kLatentValues] bf16
  int64_t out_stride;
  const void* k;  ///< [num_blocks, block_size, kLatentRow]
  KvSlots cache;
  const int32_t* query_start;
  const int32_t* context_len;
  const int32_t* block_table;  ///< [sequences, max_blocks]
  int32_t max_blocks;
  int32_t first_sequence;
  int32_t num_sequences;
  int32_t heads;
  float scale_log2;
  LatentPlan plan;
  float*
      partials;  ///< [tiles, splits, rows, kLatentValues] of more than one split, not yet divided by their sums
  float2* maxima;  ///< [tiles, splits, rows] largest exponent of 2, and the sum of those relative to it
};

/// See attention_latent.cuh. Kv: bf16 or f16.
template <class Kv>
void attention_latent(Launch& launch, const LatentParams& params);

}  // namespace minfer::cuda
