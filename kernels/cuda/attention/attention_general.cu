// Attention for every type and head size in f32 arithmetic: what the faster kernels do not cover.
//
//   out[t, h] = sum over j < keys(t) of softmax_j(scale * q[t, h] . k[j, h / group]) v[j, h / group]
//   keys(t) = context of t's sequence - tokens of the sequence after t in this step
//
// With a window, keys start at keys(t) - window; scores may be capped, and a sink may join the softmax (AttentionArgs). A query that sees
// more than `most_chosen` keys sees those that are listed.
//
//   qkv     [tokens, heads * head_size, or with k and v behind] bf16 or f32, rows `stride` apart; only q is read
//   k       [num_blocks, kv_heads, block_size, head_size] f32, f16, bf16 or fp8 e4m3
//   v       [num_blocks, kv_heads, block_size, value_size] of the same, or the first elements of k's rows
//   out     [tokens, heads * value_size] of qkv's type, or fp8 with values of 128 (fp8_activations.h)
//
// A block takes one head of one query token: grid (the most tokens of the range, heads); blocks beyond the
// range's tokens end. Its warps take keys in turn, kKeys at a time, each with its own softmax (Milakov &
// Gimelshein 2018), and join them in shared memory. Lane l holds elements l, l + 32, ... of the head. K and V
// of a head are read once for each query token and head, through L2. A token without keys (padding) gives
// zeros.
#include <cmath>
#include <string>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/attention/shared/attention_params.h"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/element_types.h"

namespace minfer::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kKeys = 4;
/// Elements of a head per lane: for most models' heads, and for the largest heads or rows of latent attention.
constexpr int32_t kMostOfFew = 256;
constexpr int kFewElements = kMostOfFew / 32;
constexpr int kManyElements = kMaxLatentRow / 32;
static_assert(kMaxHeadSize <= kMaxLatentRow);

struct GeneralParams : AttentionParams {
  int32_t head_size;
  int32_t value_size;
  int32_t value_stride;  ///< elements from a row of v to the next
  float scale;
  AttentionOptions options;
  const int32_t* chosen;
  int32_t most_chosen;
};

/// The state of a softmax: the largest score, the sum of exponentials relative to it and the weighted values.
template <int kElements>
struct Softmax {
  float max = -INFINITY;
  float sum = 0.0f;
  float value[kElements] = {};
};

/// The last sequence of the range that begins at or before `token`.
__device__ int32_t find_sequence(const GeneralParams& p, int32_t token) {
  int32_t low = p.first_sequence, high = p.first_sequence + p.num_sequences;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (p.query_start[middle] <= token ? low : high) = middle;
  }
  return low;
}

/// Adds keys [key, key + kKeys) that are below `keys` to a warp's softmax. `chosen`: their positions; null: they are positions.
template <class Kv, int kElements>
__device__ void add_keys(const GeneralParams& p, const int32_t* blocks, const int32_t* chosen,
                         int32_t kv_head, int32_t key, int32_t keys, const float (&q)[kElements],
                         Softmax<kElements>& softmax) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  int64_t row[kKeys];
  float score[kKeys];
  float max = softmax.max;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int32_t last = min(key + i, keys - 1);
    const BlockOffset place = block_offset(p.cache, chosen != nullptr ? chosen[last] : last);
    row[i] = kv_row(p.cache, blocks[place.block], kv_head, place.offset);
    float dot = 0.0f;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int32_t d = lane + 32 * e;
      if (d < p.head_size) dot += q[e] * to_f32(static_cast<const Kv*>(p.k)[row[i] * p.head_size + d]);
    }
    float x = warp_sum(dot) * p.scale;
    if (p.options.cap > 0.0f) x = p.options.cap * tanhf(x / p.options.cap);
    score[i] = key + i < keys ? x : -INFINITY;
    max = fmaxf(max, score[i]);
  }
  const float old_weight = expf(softmax.max - max);
  softmax.max = max;
  softmax.sum *= old_weight;
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    softmax.value[e] *= old_weight;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const float weight = expf(score[i] - max);
    softmax.sum += weight;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int32_t d = lane + 32 * e;
      if (d < p.value_size)
        softmax.value[e] += weight * to_f32(static_cast<const Kv*>(p.v)[row[i] * p.value_stride + d]);
    }
  }
}

template <class T, class Kv, int kElements>
__global__ __launch_bounds__(kWarps * 32) void attention_general_kernel(GeneralParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ float shared_max[kWarps];
  __shared__ float shared_sum[kWarps];
  __shared__ float shared_value[kWarps][kElements * 32];
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t token = p.query_start[p.first_sequence] + static_cast<int32_t>(blockIdx.x);
  if (token >= p.query_start[p.first_sequence + p.num_sequences]) return;
  const int32_t sequence = find_sequence(p, token);
  int32_t keys = p.context_len[sequence] - (p.query_start[sequence + 1] - 1 - token);
  const int32_t* chosen = nullptr;
  if (p.chosen != nullptr && keys > p.most_chosen) {
    keys = p.most_chosen;
    chosen = p.chosen + int64_t{token} * keys;
  }
  const int32_t* blocks = p.block_table + int64_t{sequence} * p.max_blocks;
  const auto head = static_cast<int32_t>(blockIdx.y);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;

  const T* q_row = static_cast<const T*>(p.qkv) + token * p.qkv_stride + int64_t{head} * p.head_size;
  float q[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    q[e] = lane + 32 * e < p.head_size ? to_f32(q_row[lane + 32 * e]) : 0.0f;
  Softmax<kElements> softmax;
  for (int32_t key = p.options.first_seen(keys - 1) + warp * kKeys; key < keys; key += kWarps * kKeys)
    add_keys<Kv>(p, blocks, chosen, head / p.group, key, keys, q, softmax);

  if (lane == 0) {
    shared_max[warp] = softmax.max;
    shared_sum[warp] = softmax.sum;
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    shared_value[warp][lane + 32 * e] = softmax.value[e];
  __syncthreads();
  float max = shared_max[0];
  for (int w = 1; w < kWarps; ++w)
    max = fmaxf(max, shared_max[w]);
  const bool has_sink = p.options.sinks != nullptr && keys > 0;
  const float sink = has_sink ? p.options.sinks[head] : -INFINITY;
  max = fmaxf(max, sink);
  const auto result = [&](int32_t d) {
    float sum = has_sink ? expf(sink - max) : 0.0f, value = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = shared_sum[w] != 0.0f ? expf(shared_max[w] - max) : 0.0f;  // NaN stays NaN
      sum += weight * shared_sum[w];
      value += weight * shared_value[w][d];
    }
    return sum != 0.0f ? value / sum : 0.0f;
  };
  if (p.fp8_out.codes != nullptr) {
    if (warp == 0)
      store_fp8(
          p.fp8_out, token, head * kFp8Columns,
          make_float4(result(4 * lane), result(4 * lane + 1), result(4 * lane + 2), result(4 * lane + 3)));
    return;
  }
  T* out = static_cast<T*>(p.out) + token * p.out_stride + int64_t{head} * p.value_size;
  for (auto d = static_cast<int32_t>(threadIdx.x); d < p.value_size; d += kWarps * 32)
    out[d] = from_f32<T>(result(d));
}

template <class T, class Kv>
void launch_kernel(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  const GeneralParams params{attention_params(batch, args),
                             args.kv.head_size,
                             args.kv.value_size(),
                             args.kv.value_stride(),
                             args.scale,
                             attention_options(args),
                             args.chosen,
                             args.most_chosen};
  const dim3 grid(static_cast<unsigned>(max_query_tokens(batch, args)), static_cast<unsigned>(args.heads));
  const auto kernel = params.head_size <= kMostOfFew && params.value_size <= kMostOfFew
                          ? attention_general_kernel<T, Kv, kFewElements>
                          : attention_general_kernel<T, Kv, kManyElements>;
  launch("attention", kernel, grid, dim3(kWarps * 32), 0, params);
}

}  // namespace

void attention_general(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  const int32_t most = args.kv.v_in_k ? kMaxLatentRow : kMaxHeadSize;
  for (const int32_t size : {args.kv.head_size, args.kv.value_size()}) {
    if (size <= 0 || size > most)
      unsupported("attention", "a head size up to " + std::to_string(most), std::to_string(size));
  }
  for_elements({"attention: qkv", args.qkv.dtype}, {"attention: KV cache", args.kv.dtype},
               [&]<class T, class Kv>() { launch_kernel<T, Kv>(launch, batch, args); });
}

}  // namespace minfer::cuda
