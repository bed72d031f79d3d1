#pragma once

#include <cstdint>

#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/attention/shared/attention_params.h"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

struct PrefillParams : AttentionParams {
  int32_t tokens_per_tile;  ///< kQueryRows / group, or kWideQueryRows / group
  int32_t max_tiles;        ///< for a KV head
  int32_t num_tokens;       ///< rows of qkv
  int32_t num_blocks;       ///< of the cache
  int32_t keys_of_box;    ///< keys that a copy brings from a block of the cache: attention_prefill_wgmma.cuh
  uint32_t* taken_tiles;  ///< 0 between launches
};

struct PrefillOptionParams : PrefillParams {
  AttentionOptions options;
};

// Instantiated by instances.cmake.

/// See attention_prefill.cuh. Kv: one of NarrowCacheTypes; head_size 64 or 128.
template <class Kv, class Params>
void attention_prefill(Launch& launch, const Params& params, int32_t head_size);

/// See attention_prefill_wgmma.cuh. `kv`: bf16, f16 or fp8, on Hopper, in blocks that fit_boxes(). kHead: one
/// of kTensorCoreHeads except the widest; rare ones with PrefillOptionParams alone.
template <int kHead, class Params>
void attention_prefill_wgmma(Launch& launch, const Params& params, DType kv);

/// See attention_prefill_wide.cuh. Kv: one of NarrowCacheTypes; heads of kWideHeadSize.
template <class Kv>
void attention_prefill_wide(Launch& launch, const PrefillOptionParams& params);

}  // namespace minfer::cuda
