#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention/decode/attention_decode.h"
#include "kernels/cuda/attention/decode/attention_segments.cuh"
#include "kernels/cuda/attention/shared/attention_fragments.cuh"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/weights/element_types.h"

// Attention of sequences that bring one token each, over a paged cache in bf16, f16 or fp8 e4m3.
//
//   out[s, h] = softmax_j(scale * q[s, h] . k[j, h / group]) v[j, h / group],  j < context_len[s]
//
// DecodeOptionParams adds j >= context_len[s] - window, capped scores and a sink in the softmax. Chunks in
// front of the window belong to no share; a sink joins when a unit's result is written.
//
//   qkv     [sequences, (heads + 2 kv_heads) * head_size] bf16, rows `stride` apart; only q is read
//   k, v    [num_blocks, kv_heads, block_size, head_size]
//   out     [sequences, heads * head_size] bf16; zeros where the context is 0
//
// Each multiprocessor has two blocks (one with heads of 512). All blocks have equal shares of all chunks of
// 16 keys (attention_plan.h). A segment is a block's part of one unit. The block's four warps take it in
// turn, in steps of one or two chunks; there are two warps if a step is more than 8 KB (heads of 192 and
// more). A warp copies its steps through its own ring in shared memory, kStages - 1 steps ahead (128 KB a
// multiprocessor in flight) and across the ends of segments, so that the loads never drain. It needs no
// barrier until a segment is complete. Then the warps join their softmaxes (Milakov & Gimelshein 2018; in
// base 2). A segment that is a whole unit goes to `out`; others go to `partials`, and the block that arrives
// last at the unit's counter merges them in the order of the chunks, whichever came first: results repeat bit
// for bit.
//
// Bytes: K and V once. The plan and keys older than this step's are read before begin_kernel(). So the first
// loads overlap the kernel in front, which writes only this step's keys.
namespace minfer::cuda {

/// Bytes of the rings of a block's warps together. For heads of 512, on GPUs with room, one block has what two others have.
constexpr int rings_bytes(int head_size) {
  return head_size > 256 ? 192 << 10 : (kHasSmallBlocks ? 64 : 96) << 10;
}
constexpr int kMergedTogether = 8;  ///< parts of a unit

template <class Kv, int kHead, class Params>
struct DecodeKernel {
  using Fragments = KvFragments<Kv, kHead>;
  using Element = typename Fragments::Element;
  using Rows = typename Fragments::Rows;
  static constexpr int kRowBytes = kHead * static_cast<int>(sizeof(Kv));
  static constexpr int kGroups = kRowBytes <= 128 || sizeof(Kv) == 1 ? 2 : 1;  ///< chunks of a step
  static constexpr int kStepKeys = kGroups * kChunkKeys;
  static constexpr int kTileBytes = kStepKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;              ///< K, then V
  static constexpr int kWarps = kStageBytes > (8 << 10) ? 2 : 4;  ///< so that a warp has enough stages
  static constexpr int kStages = rings_bytes(kHead) / kWarps / kStageBytes;
  static constexpr int kDimSteps = kHead / 16;
  static constexpr int kJoinStride = kHead + 4;  ///< of a head: spreads a fragment's stores over banks

  /// With heads of 512 Q's fragments lie in shared memory, and each warp loads a part of them: values take 128 registers.
  static constexpr bool kSharesQuery = kHead > 256;
  static constexpr int kQuerySteps = kSharesQuery ? kDimSteps / kWarps : kDimSteps;  ///< that a warp loads
  using Query = uint32_t[kQuerySteps][2];

  struct Shared {
    char ring[kWarps][kStages][kStageBytes];
    float value[kWarps][kUnitHeads]
               [kJoinStride];  ///< between segments; before that, Q's fragments if they are shared
    float max[kWarps][kUnitHeads];
    float sum[kWarps][kUnitHeads];
    int32_t arrived;
  };

  static_assert(kStages >= 2);
  static_assert(sizeof(Shared::value) >= kDimSteps * 32 * sizeof(uint2));

  using Cursor = SegmentCursor<kGroups, Params>;

  /// A warp's softmax so far: fragments of O^T, and for each of a lane's two query heads the largest score and
  /// the sum of the weights of this lane's keys.
  struct Softmax {
    float value[kDimSteps][4];
    float max[2];
    float sum[2];
  };

  const Params& p;
  Shared& shared;
  const int32_t end;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  /// Looks up this lane's key of the step.
  __device__ KeyRow look_up_key(const Cursor& cursor) const {
    const int32_t position = cursor.first_key(cursor.step) + lane % kStepKeys;
    bool is_none = cursor.line == end;
    if constexpr (kHasOptions<Params>) is_none = is_none || position < cursor.first_seen(p);
    return look_up(p.cache, p.block_table + int64_t{cursor.sequence} * p.max_blocks,
                   cursor.unit / p.per_kv_head.per_kv_head, position, is_none ? 0 : cursor.keys_end(end));
  }

  /// Starts the copy of a step whose keys the lanes have looked up.
  __device__ void copy_step(int stage, const KeyRow& key_of_lane) const {
    const int32_t row = key_of_lane.row(p.cache);
    const uint32_t tile = shared_address(shared.ring[warp][stage]);
#pragma unroll 8  // with more, look-ups run so far ahead that registers spill
    for (int i = 0; i < kTileBytes / (16 * 32); ++i) {
      const int key = (i * 32 + lane) / Rows::kPieces;
      const int piece = (i * 32 + lane) % Rows::kPieces;
      const int32_t from = __shfl_sync(~0u, row, key);
      const int64_t offset = int64_t{max(from, 0)} * kRowBytes + piece * 16;
      const uint32_t to = tile + Rows::offset(key, piece);
      copy_async(to, static_cast<const char*>(p.k) + offset, from >= 0);
      copy_async(to + kTileBytes, static_cast<const char*>(p.v) + offset, from >= 0);
    }
    commit_copies();
  }

  __device__ int32_t first_head(const Cursor& cursor) const {
    return cursor.unit / p.per_kv_head.per_kv_head * p.group +
           cursor.unit % p.per_kv_head.per_kv_head * p.per_kv_head.query_heads;
  }
  __device__ int32_t num_heads(const Cursor& cursor) const {
    const int32_t first = cursor.unit % p.per_kv_head.per_kv_head * p.per_kv_head.query_heads;
    return min(p.per_kv_head.query_heads, p.group - first);
  }

  /// This warp's part of a unit's Q^T, as bf16: columns beyond the unit's query heads are 0.
  __device__ void load_query(const Cursor& cursor, Query& q) const {
    const int first_step = kSharesQuery ? warp * kQuerySteps : 0;
    const bool used = lane_group() < num_heads(cursor);
    const int64_t head = first_head(cursor) + lane_group();
    const __nv_bfloat16* row =
        static_cast<const __nv_bfloat16*>(p.qkv) + cursor.sequence * p.qkv_stride + head * kHead;
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        q[step][half] = 0;
        if (used) {
          const int dim = Fragments::dim_of_query(first_step + step, half);
          q[step][half] = *reinterpret_cast<const uint32_t*>(row + dim);
        }
      }
    }
  }
  static __device__ void convert_query(Query& q) {
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        q[step][half] = from_bf16_pair<Element>(q[step][half]);
    }
  }

  __device__ uint2* shared_query() const {
    return reinterpret_cast<uint2*>(shared.value);
  }
  /// Puts the warps' parts of Q where all warps read them. All call it, after they have left the data that lies there.
  __device__ void share_query(const Query& q) const {
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step)
      shared_query()[(warp * kQuerySteps + step) * 32 + lane] = {q[step][0], q[step][1]};
    __syncthreads();
  }
  __device__ uint2 query_fragment(const Query& q, int step) const {
    if constexpr (kSharesQuery) return shared_query()[step * 32 + lane];
    return {q[step][0], q[step][1]};
  }

  /// Adds the keys from `first_key` on; only those in [first_seen, keys_end) count.
  __device__ void add_step(uint32_t tile, int32_t first_key, int32_t first_seen, int32_t keys_end,
                           const Query& q, Softmax& softmax) const {
    float score[kGroups][2][4] = {};  // two sums each: keys lane_group(), + 8; heads 2 lane_in_group(), + 1
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t k[kGroups][4];
      Fragments::load_keys(k, tile, step);
      const uint2 of_query = query_fragment(q, step);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        multiply_add<Element>(score[g][step % 2], k[g], of_query.x, of_query.y);
    }
    float weight[kGroups][4], factor[2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t key = first_key + 16 * g + lane_group() + i / 2 * 8;
        bool counts = key < keys_end;
        float product = score[g][0][i] + score[g][1][i];
        if constexpr (kHasOptions<Params>) {
          counts = counts && key >= first_seen;
          if (p.options.cap > 0.0f) product = p.options.capped(product);
        }
        weight[g][i] = counts ? product * p.scale_log2 : -INFINITY;
      }
    }
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float max = fmaxf(weight[0][head], weight[0][head + 2]);
      if constexpr (kGroups == 2) max = fmaxf(max, fmaxf(weight[1][head], weight[1][head + 2]));
      max = fmaxf(max_of_groups(max), softmax.max[head]);
      const float base = max == -INFINITY ? 0.0f : max;
      factor[head] = exp2_approx(softmax.max[head] - base);
      softmax.max[head] = max;
      softmax.sum[head] *= factor[head];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        weight[g][head] = exp2_approx(weight[g][head] - base);
        weight[g][head + 2] = exp2_approx(weight[g][head + 2] - base);
        softmax.sum[head] += weight[g][head] + weight[g][head + 2];
      }
    }
    if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) rescale(softmax, factor);
    uint32_t p_low[kGroups], p_high[kGroups];  // P^T: keys 0-7 and 8-15 of each group
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      p_low[g] = transpose_matrix(pack<Element>(weight[g][0], weight[g][1]));
      p_high[g] = transpose_matrix(pack<Element>(weight[g][2], weight[g][3]));
    }
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t v[kGroups][4];
      Fragments::load_values(v, tile + kTileBytes, step);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        multiply_add<Element>(softmax.value[step], v[g], p_low[g], p_high[g]);
    }
  }

  static __device__ void rescale(Softmax& softmax, const float (&factor)[2]) {
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        softmax.value[step][i] *= factor[i % 2];
    }
  }

  /// Puts a warp's softmax where the block joins all of them.
  __device__ void share_softmax(Softmax& softmax) const {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      softmax.sum[head] = sum_of_groups(softmax.sum[head]);
      const int at = 2 * lane_in_group() + head;
#pragma unroll
      for (int step = 0; step < kDimSteps; ++step) {
        shared.value[warp][at][Fragments::dim_of_result(step, 0)] = softmax.value[step][head];
        shared.value[warp][at][Fragments::dim_of_result(step, 1)] = softmax.value[step][head + 2];
      }
      if (lane_group() == 0) {
        shared.max[warp][at] = softmax.max[head];
        shared.sum[warp][at] = softmax.sum[head];
      }
    }
  }

  /// Four neighbouring elements of a query head of a softmax.
  struct Part {
    float max = -INFINITY;
    float sum = 0.0f;
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};

    __device__ void add(float other_max, float other_sum, const float4& other) {
      const float new_max = fmaxf(max, other_max);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      const float mine = exp2_approx(max - base), theirs = exp2_approx(other_max - base);
      max = new_max;
      sum = sum * mine + other_sum * theirs;
      value = {value.x * mine + other.x * theirs, value.y * mine + other.y * theirs,
               value.z * mine + other.z * theirs, value.w * mine + other.w * theirs};
    }
  };

  __device__ void write_result(const Cursor& cursor, int head, int dim, const Part& part) const {
    float inverse = part.sum != 0.0f ? 1.0f / part.sum : 0.0f;
    if constexpr (kHasOptions<Params>)
      inverse = p.options.end_factor(part.max, part.sum, first_head(cursor) + head);
    if constexpr (kHead == kFp8Columns) {  // a warp has one head
      if (p.fp8_out.codes != nullptr)
        return store_fp8(p.fp8_out, cursor.sequence, (first_head(cursor) + head) * kHead,
                         make_float4(part.value.x * inverse, part.value.y * inverse, part.value.z * inverse,
                                     part.value.w * inverse));
    }
    const uint2 packed = {pack<__nv_bfloat16>(part.value.x * inverse, part.value.y * inverse),
                          pack<__nv_bfloat16>(part.value.z * inverse, part.value.w * inverse)};
    __nv_bfloat16* row = static_cast<__nv_bfloat16*>(p.out) + cursor.sequence * p.out_stride +
                         int64_t{first_head(cursor) + head} * kHead;
    *reinterpret_cast<uint2*>(row + dim) = packed;
  }

  /// A block writes at most two partial segments: one continues from the block before, one begins in this block.
  __device__ DecodePartial<kHead>& partial(int32_t share, bool begins) const {
    return static_cast<DecodePartial<kHead>*>(p.partials)[2 * share + (begins ? 1 : 0)];
  }

  /// Joins the warps' parts of a segment.
  __device__ void finish_segment(const Cursor& cursor, int32_t share) {
    const bool whole = cursor.chunk == 0 && cursor.segment_end(end) == cursor.unit_begin() + cursor.chunks;
    const int32_t items = num_heads(cursor) * (kHead / 4);
    __syncthreads();
    for (auto item = static_cast<int32_t>(threadIdx.x); item < items; item += kWarps * 32) {
      const int head = item / (kHead / 4), dim = item % (kHead / 4) * 4;
      Part part;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        part.add(shared.max[w][head], shared.sum[w][head],
                 *reinterpret_cast<const float4*>(&shared.value[w][head][dim]));
      }
      if (whole) {
        write_result(cursor, head, dim, part);
      } else {
        DecodePartial<kHead>& to = partial(static_cast<int32_t>(blockIdx.x), cursor.chunk == 0);
        __stcg(reinterpret_cast<float4*>(&to.value[head][dim]), part.value);
        if (dim == 0) __stcg(&to.max_sum[head], float2{part.max, part.sum});
      }
    }
    if (!whole) merge_if_last(cursor, share, items);
    __syncthreads();
  }

  __device__ void merge_if_last(const Cursor& cursor, int32_t share, int32_t items) {
    const int32_t first = cursor.unit_begin() / share;
    const int32_t last = (cursor.unit_begin() + cursor.chunks - 1) / share;
    int32_t* counter = p.counters + cursor.sequence * p.units + cursor.unit;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) shared.arrived = atomicAdd(counter, 1);
    __syncthreads();
    if (shared.arrived != last - first) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;  // for the next launch
    for (auto item = static_cast<int32_t>(threadIdx.x); item < items; item += kWarps * 32) {
      const int head = item / (kHead / 4), dim = item % (kHead / 4) * 4;
      Part part;
      for (int32_t some = first; some <= last; some += kMergedTogether) {
        // All loads are issued before the first is waited for.
        float2 max_sum[kMergedTogether];
        float4 value[kMergedTogether];
#pragma unroll
        for (int i = 0; i < kMergedTogether; ++i) {
          const int32_t block = min(some + i, last);
          const DecodePartial<kHead>& from = partial(block, block == first);
          max_sum[i] = __ldcg(&from.max_sum[head]);
          value[i] = __ldcg(reinterpret_cast<const float4*>(&from.value[head][dim]));
        }
#pragma unroll
        for (int i = 0; i < kMergedTogether; ++i) {
          if (some + i <= last) part.add(max_sum[i].x, max_sum[i].y, value[i]);
        }
      }
      write_result(cursor, head, dim, part);
    }
  }

  __device__ void run(const DecodeShare& mine, const Stamp& stamps) {
    Cursor segment{mine.begin, mine.sequence, mine.unit,
                   mine.chunk, mine.chunks,   __ldcg(p.context_len + mine.sequence),
                   0};
    segment.skip_chunks(p);
    Cursor fetch = segment;  // the position of `key`, kStages - 1 steps ahead of the products
    fetch.advance(p, end, warp);
    KeyRow key = look_up_key(fetch);
    bool begun = false;
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (!begun && fetch.has_newest_key(end)) {
        begin_kernel(stamps);
        begun = true;
      }
      copy_step(stage, key);
      fetch.advance(p, end, kWarps);
      key = look_up_key(fetch);
    }
    if (!begun) begin_kernel(stamps);
    allow_next_kernel();

    Query q;
    load_query(segment, q);
    int stage = 0;
    int32_t step = warp;
    for (bool more = true; more;) {
      Softmax softmax{{}, {-INFINITY, -INFINITY}, {}};
      if constexpr (!std::is_same_v<Element, __nv_bfloat16>) convert_query(q);
      if constexpr (kSharesQuery) share_query(q);
      const int32_t steps = segment.steps(end);
      for (; step < steps; step += kWarps) {
        __syncwarp();
        copy_step(stage == 0 ? kStages - 1 : stage - 1, key);
        fetch.advance(p, end, kWarps);
        key = look_up_key(fetch);
        wait_for_copies<kStages - 1>();
        __syncwarp();
        add_step(shared_address(shared.ring[warp][stage]), segment.first_key(step), segment.first_seen(p),
                 segment.keys_end(end), q, softmax);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      step -= steps;
      const Cursor done = segment;
      more = segment.next_segment(p, end);
      if (more && !kSharesQuery) load_query(segment, q);  // arrives while the warps join
      if constexpr (kSharesQuery) __syncthreads();        // all have read Q, whose memory the join uses
      share_softmax(softmax);
      if (more && kSharesQuery) load_query(segment, q);  // into the registers that held values
      finish_segment(done, mine.share);
    }
  }
};

template <class Kv, int kHead, class Params>
__global__ __launch_bounds__((DecodeKernel<Kv, kHead, Params>::kWarps * 32),
                             decode_blocks_per_sm(kHead)) void attention_decode_kernel(Params p,
                                                                                       Stamps stamps) {
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(128) char memory[];
  using Kernel = DecodeKernel<Kv, kHead, Params>;
  const auto* words = reinterpret_cast<const int4*>(p.shares + blockIdx.x);
  const int4 first = __ldcg(words), second = __ldcg(words + 1);
  const DecodeShare mine{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  if (mine.begin == mine.end) {
    begin_kernel(stamps);
    return;
  }
  Kernel{p, *reinterpret_cast<typename Kernel::Shared*>(memory), mine.end}.run(mine, stamps);
}

template <class Kv, int kHead, class Params>
void launch_decode_kernel(Launch& launch, const Params& params, int32_t num_shares) {
  using Kernel = DecodeKernel<Kv, kHead, Params>;
  using Shared = typename Kernel::Shared;
  static_assert(sizeof(Shared) <= (kHead > 256 ? kWideHeadSharedBytes : kTensorCoreSharedBytes));
  constexpr int64_t kAheadBytes = int64_t{Kernel::kWarps} * (Kernel::kStages - 1) * Kernel::kStageBytes;
  launch.reads_ahead(num_shares * kAheadBytes)("attention", attention_decode_kernel<Kv, kHead, Params>,
                                               dim3(static_cast<unsigned>(num_shares)),
                                               dim3(Kernel::kWarps * 32), sizeof(Shared), params);
}

template <int kHead, class Params>
void attention_decode(Launch& launch, const Params& params, DType kv, int32_t num_shares) {
  for_type(NarrowCacheTypes{}, "attention on tensor cores: KV cache", kv,
           [&](auto type) { launch_decode_kernel<ElementOf<type>, kHead>(launch, params, num_shares); });
}

}  // namespace minfer::cuda
