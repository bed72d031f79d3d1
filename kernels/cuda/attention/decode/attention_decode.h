#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_options.cuh"
#include "kernels/cuda/attention/decode/attention_plan.h"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

/// Query heads of a unit at the most: the short side of a product.
inline constexpr int32_t kUnitHeads = 8;

/// What a block found out about a part of a unit: the softmax's state of each query head.
template <int kHead>
struct DecodePartial {
  float value[kUnitHeads][kHead];
  float2 max_sum[kUnitHeads];
};
inline constexpr int64_t decode_partial_bytes(int32_t head_size) {
  return int64_t{kUnitHeads} * (head_size + 2) * static_cast<int64_t>(sizeof(float));
}

struct DecodeParams {
  const void* qkv;  ///< [sequences, (heads + 2 kv_heads) * head_size] bf16
  int64_t qkv_stride;
  void* out;  ///< [sequences, heads * head_size] bf16
  int64_t out_stride;
  Fp8Activations fp8_out;  ///< instead of out, where heads of 128 go into an FP8 product; else null
  const void* k;
  const void* v;
  KvSlots cache;
  const int32_t* context_len;
  const int32_t* block_table;  ///< [sequences, max_blocks]
  int32_t max_blocks;
  int32_t group;  ///< query heads a KV head
  DecodeUnits per_kv_head;
  int32_t units;  ///< of a sequence
  float scale_log2;
  const DecodeShare* shares;
  void* partials;     ///< [2 num_shares] DecodePartial
  int32_t* counters;  ///< [sequences, units], 0 between launches
};

struct DecodeOptionParams : DecodeParams {
  AttentionOptions options;
};

/// See attention_decode.cuh. `kv`: bf16, f16 or fp8; kHead of kTensorCoreHeads, which instances.cmake compiles: rare ones with
/// DecodeOptionParams alone.
template <int kHead, class Params>
void attention_decode(Launch& launch, const Params& params, DType kv, int32_t num_shares);

}  // namespace minfer::cuda
