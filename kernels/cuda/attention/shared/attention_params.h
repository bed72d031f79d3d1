#pragma once

#include <cstdint>

#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The arguments of every attention kernel: rows in and out, the cache, the step's sequences. Pointers into device memory.
struct AttentionParams {
  const void* qkv;  ///< [tokens, (heads + 2 kv_heads) * head_size]; latent: q [tokens, heads, kLatentRow]
  int64_t qkv_stride;
  void* out;  ///< [tokens, heads * value_size]
  int64_t out_stride;
  Fp8Activations fp8_out;  ///< instead of out, if heads of 128 go into an FP8 product; else null
  const void* k;
  const void* v;
  KvSlots cache;
  const int32_t* query_start;
  const int32_t* context_len;
  const int32_t* block_table;  ///< [sequences, max_blocks]
  int32_t max_blocks;
  int32_t first_sequence;
  int32_t num_sequences;
  int32_t group;     ///< query heads per KV head
  float scale_log2;  ///< scale of the products q k, times log2(e); positive
};

inline AttentionParams attention_params(const ForwardBatch& batch, const AttentionArgs& args) {
  return {.qkv = args.qkv.data,
          .qkv_stride = args.qkv.stride,
          .out = args.out.data,
          .out_stride = args.out.stride,
          .fp8_out = fp8_activations(args.out),
          .k = args.kv.k,
          .v = args.kv.v,
          .cache = make_kv_slots(args.kv),
          .query_start = batch.query_start,
          .context_len = batch.context_len,
          .block_table = batch.block_table,
          .max_blocks = batch.max_blocks,
          .first_sequence = args.first_sequence,
          .num_sequences = args.num_sequences,
          .group = args.heads / args.kv.kv_heads,
          .scale_log2 = scale_log2(args)};
}

}  // namespace minfer::cuda
