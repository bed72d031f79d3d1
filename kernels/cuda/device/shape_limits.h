#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/shape_limits.h"

/// The shapes that the CUDA kernels take, in one place. The kernels check against these constants, and a model is
/// checked against them before it is loaded. Free of CUDA, so that a machine without it can test the refusals.
namespace minfer::cuda {

inline constexpr int32_t kMaxHeadSize = 512;
/// The most elements of a row of attention whose values are within its keys.
inline constexpr int32_t kMaxLatentRow = 640;
/// The most kinds of layer, which differ in window, KV heads or their size. A decode step has a plan for each.
inline constexpr int32_t kMaxAttentionKinds = 8;
/// A lane of the rotation takes two pairs.
inline constexpr int32_t kHeadSizeMultiple = 4;
inline constexpr int32_t kMaxExperts = 512;
/// A block of choose_keys() has a token's queries in shared memory, in f32.
inline constexpr int32_t kMaxIndexerColumns = 8192;
/// A thread of the delta rule keeps four of every 64 rows of the state.
inline constexpr int32_t kMaxDeltaKeySize = 256;
/// Sums of the sampler's weights for up to 1 << 20 tokens fit into 64 bits.
inline constexpr int32_t kMaxVocabulary = 1 << 20;

/// Bytes of dequantised rows in flight. Less stays in the L2 but makes the products small: 16, 32 and 64 MiB
/// take 57, 53 and 52.5 ms for a step of 2,048 tokens of Llama-3.1-8B in q4_k on an H200.
inline constexpr int64_t kWeightScratchBytes = int64_t{64} << 20;
/// Chunks of dequantised rows begin at multiples of this: whole strips, and whole tiles of cuBLASLt.
inline constexpr int64_t kChunkRows = 256;
/// Elements that a thread dequantises to f32 at a time.
inline constexpr int32_t kDequantisedTogether = 4;

inline ShapeLimits shape_limits(DType activation) {
  const auto columns =
      static_cast<int32_t>(kWeightScratchBytes / kChunkRows / traits(activation).block_bytes);
  return {.max_vocab_size = kMaxVocabulary,
          .max_head_size = kMaxHeadSize,
          .max_latent_row = kMaxLatentRow,
          .head_size_multiple = kHeadSizeMultiple,
          .rotary_size_multiple = kHeadSizeMultiple,
          .max_experts = kMaxExperts,
          .max_hidden_size = columns / 2,
          .max_columns = columns,
          .columns_multiple = activation == DType::f32 ? kDequantisedTogether : 1,
          .max_attention_kinds = kMaxAttentionKinds,
          .max_delta_key_size = kMaxDeltaKeySize,
          .max_indexer_columns = kMaxIndexerColumns};
}

}  // namespace minfer::cuda
