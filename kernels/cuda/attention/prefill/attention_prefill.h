#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_options.cuh"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

struct PrefillParams {
  const void* qkv;  ///< [tokens, (heads + 2 kv_heads) * head_size] bf16
  int64_t qkv_stride;
  void* out;  ///< [tokens, heads * head_size] bf16
  int64_t out_stride;
  Fp8Activations fp8_out;  ///< instead of out, where heads of 128 go into an FP8 product; else null
  const void* k;
  const void* v;
  KvSlots cache;
  const int32_t* query_start;
  const int32_t* context_len;
  const int32_t* block_table;  ///< [sequences, max_blocks]
  int32_t max_blocks;
  int32_t first_sequence;
  int32_t num_sequences;
  int32_t group;            ///< query heads a KV head
  int32_t tokens_per_tile;  ///< kQueryRows / group, or kWideQueryRows / group
  int32_t max_tiles;        ///< of a KV head
  int32_t num_tokens;       ///< rows of qkv
  int32_t num_blocks;       ///< of the cache
  int32_t keys_of_box;  ///< that are copied at a time from a block of the cache: attention_prefill_wgmma.cuh
  uint32_t* taken_tiles;  ///< 0 between launches
  float scale_log2;       ///< positive
};

struct PrefillOptionParams : PrefillParams {
  AttentionOptions options;
};

// What instances.cmake compiles.

/// See attention_prefill.cuh. Kv: of NarrowCacheTypes; head_size 64 or 128.
template <class Kv, class Params>
void attention_prefill(Launch& launch, const Params& params, int32_t head_size);

/// See attention_prefill_wgmma.cuh. `kv`: bf16, f16 or fp8, on Hopper, in blocks that fit_boxes(); kHead of kTensorCoreHeads but for the
/// widest, rare ones with PrefillOptionParams alone.
template <int kHead, class Params>
void attention_prefill_wgmma(Launch& launch, const Params& params, DType kv);

/// See attention_prefill_wide.cuh. Kv: of NarrowCacheTypes; heads of kWideHeadSize.
template <class Kv>
void attention_prefill_wide(Launch& launch, const PrefillOptionParams& params);

}  // namespace minfer::cuda
