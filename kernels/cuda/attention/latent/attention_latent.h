#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention/shared/attention_params.h"
#include "kernels/cuda/attention/shared/latent_plan.h"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

/// `out` [tokens, heads, kLatentValues] bf16, `k` [num_blocks, block_size, kLatentRow].
struct LatentParams : AttentionParams {
  int32_t heads;
  LatentPlan plan;
  float*
      partials;  ///< [tiles, splits, rows, kLatentValues] with more than one split, not yet divided by the sums
  float2* maxima;  ///< [tiles, splits, rows] largest exponent of 2, and the sum of terms relative to it
  const int32_t* chosen;  ///< [tokens, most_chosen] AttentionArgs::chosen, or null
  int32_t most_chosen;
};

/// See attention_latent.cuh. Kv: bf16 or f16.
template <class Kv>
void attention_latent(Launch& launch, const LatentParams& params);

}  // namespace minfer::cuda
