#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>

#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/attention/shared/latent_plan.h"
#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/device/device_facts.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// Chooses the kernel that attends to a range of sequences: a pure function of types and sizes that the host knows.
namespace minfer::cuda {

enum class AttentionPath : uint8_t {
  decode,         ///< one token a sequence, on tensor cores: attention_decode.cuh
  prefill,        ///< any number of tokens a sequence, on tensor cores: attention_prefill.cuh
  prefill_wgmma,  ///< the same on Hopper: attention_prefill_wgmma.cuh
  prefill_wide,   ///< the same with heads of 512: attention_prefill_wide.cuh
  latent,   ///< values within keys, any number of tokens a sequence, on tensor cores: attention_latent.cuh
  general,  ///< any type and head size, in f32 arithmetic: attention_general.cu
};

/// The most shared memory of a block of the tensor-core kernels, as the build compiles them.
inline constexpr int32_t kTensorCoreSharedBytes = (kHasSmallBlocks ? 99 : 116) << 10;
inline constexpr int32_t kWgmmaSharedBytes = 227 << 10;
inline constexpr int32_t kWideHeadSharedBytes = 227 << 10;  ///< of heads of 512

/// Rows of a tile of the prefill paths: query tokens x query heads of a KV head.
inline constexpr int32_t kQueryRows = 128;
inline constexpr int32_t kWideQueryRows = 64;  ///< of prefill_wide
/// The head size whose kernels need more shared memory than the others.
inline constexpr int32_t kWideHeadSize = 512;

/// Keys that prefill_wgmma multiplies at a time. Registers and shared memory limit them, see README.md.
constexpr int32_t keys_of_stage(int32_t head_size, bool is_fp8) {
  if (head_size <= 128) return 128;
  return is_fp8 ? 64 : 80;
}

/// Keys that prefill_wgmma copies at a time: they divide its stages and the blocks of the cache.
constexpr int32_t keys_of_box(int32_t block_size, int32_t head_size, bool is_fp8) {
  return std::gcd(block_size, keys_of_stage(head_size, is_fp8));
}

/// True if keys in blocks of `block_size` slots can be copied. A swizzled box has a multiple of eight rows.
constexpr bool fit_boxes(int32_t block_size) {
  return block_size % 8 == 0;
}

/// Head sizes with kernels on tensor cores. prefill() has the first two alone, prefill_wide() the last.
inline constexpr int32_t kTensorCoreHeads[] = {64, 128, 80, 96, 192, 256, 512};
constexpr bool has_tensor_cores(int32_t head_size) {
  return std::find(std::begin(kTensorCoreHeads), std::end(kTensorCoreHeads), head_size) !=
         std::end(kTensorCoreHeads);
}
constexpr bool has_portable_prefill(int32_t head_size) {
  return head_size == 64 || head_size == 128;
}

/// The most query tokens that sequences [first_sequence, first_sequence + num_sequences) can bring, as far as
/// the host knows.
inline int32_t max_query_tokens(const ForwardBatch& batch, const AttentionArgs& args) {
  if (args.first_sequence == 0 && args.num_sequences == batch.num_decode_sequences) {
    return batch.num_decode_tokens;
  }
  if (args.first_sequence >= batch.num_decode_sequences) return batch.num_tokens - batch.num_decode_tokens;
  return batch.num_tokens;
}

/// True if every decoding sequence has one token. plan() and the decode path need that.
inline bool decodes_by_one(const ForwardBatch& batch) {
  return batch.num_decode_sequences > 0 && batch.num_decode_tokens == batch.num_decode_sequences;
}

/// True if the kernel of latent attention takes these arguments.
inline bool takes_latent(const AttentionArgs& args, const DeviceFacts& device) {
  const KvLayer& kv = args.kv;
  return kv.v_in_k && kv.kv_heads == 1 && kv.head_size == kLatentRow && kv.value_size() == kLatentValues &&
         args.qkv.dtype == DType::bf16 && args.out.dtype == DType::bf16 &&
         (kv.dtype == DType::bf16 || kv.dtype == DType::f16) && args.qkv.stride % 8 == 0 &&
         args.out.stride % 4 == 0 && !has_options(args) && device.shared_bytes >= kLatentSharedBytes;
}

/// `needed_bytes`: the shared memory of the kernels that every GPU may have.
inline AttentionPath choose_attention_path(const ForwardBatch& batch, const AttentionArgs& args,
                                           const DeviceFacts& device,
                                           int32_t needed_bytes = kTensorCoreSharedBytes) {
  const KvLayer& kv = args.kv;
  if (kv.v_in_k) return takes_latent(args, device) ? AttentionPath::latent : AttentionPath::general;
  const bool bf16 = args.qkv.dtype == DType::bf16;  // out is as well, or fp8
  const bool narrow_cache = kv.dtype == DType::bf16 || kv.dtype == DType::f16 || kv.dtype == DType::f8_e4m3;
  const bool head_size = has_tensor_cores(kv.head_size) && kv.value_size() == kv.head_size;
  const bool aligned = args.qkv.stride % 8 == 0 && args.out.stride % 8 == 0;  // 16-byte loads and stores
  const bool wide = kv.head_size == kWideHeadSize;
  const int64_t rows = int64_t{kv.num_blocks} * kv.kv_heads * kv.block_size;
  const bool sizes_fit = rows <= std::numeric_limits<int32_t>::max() &&
                         args.heads / kv.kv_heads <= (wide ? kWideQueryRows : kQueryRows);
  if (!bf16 || !narrow_cache || !head_size || !aligned || !sizes_fit || args.scale <= 0.0f ||
      device.shared_bytes < (wide ? kWideHeadSharedBytes : needed_bytes)) {
    return AttentionPath::general;
  }
  const bool whole_decode = args.first_sequence == 0 && args.num_sequences == batch.num_decode_sequences;
  if (whole_decode && decodes_by_one(batch)) return AttentionPath::decode;
  if (wide) return AttentionPath::prefill_wide;
  const bool wgmma = device.has_wgmma && device.shared_bytes >= kWgmmaSharedBytes && fit_boxes(kv.block_size);
  if (wgmma) return AttentionPath::prefill_wgmma;
  return has_portable_prefill(kv.head_size) ? AttentionPath::prefill : AttentionPath::general;
}

}  // namespace minfer::cuda
