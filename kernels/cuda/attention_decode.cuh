#pragma once

#include <cmath>
#include <string>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_fragments.cuh"
#include "kernels/cuda/attention_path.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/kv_slots.cuh"
#include "kernels/cuda/launch.h"

// Attention of sequences that bring one token each, over a paged cache in bf16, f16 or fp8 e4m3.
//
//   out[s, h] = softmax_j(scale * q[s, h] . k[j, h / group]) v[j, h / group],  j < context_len[s]
//
//   qkv     [sequences, (heads + 2 kv_heads) * head_size] bf16, rows `stride` apart; only q is read
//   k, v    [num_blocks, kv_heads, block_size, head_size]
//   out     [sequences, heads * head_size] bf16; zeros where the context is 0
//
// Two blocks a multiprocessor, each with an equal share of all chunks of 16 keys (attention_plan.h). The four
// warps of a block take its chunks in turn. A warp copies chunks through a ring in shared memory of its own,
// kStages - 1 of them ahead (16 KB a warp, 128 KB a multiprocessor in flight) and over the ends of units, so
// that the loads never drain; it needs no barrier until the block's part of a unit, a segment, is complete.
// Then the warps join their softmaxes (Milakov & Gimelshein 2018; in base 2). A segment that is a whole unit
// goes to `out`; others go to `partials`, and the block that arrives last at the unit's counter merges them
// in the order of the chunks, whichever came first: results repeat bit for bit.
//
// Bytes: K and V once. Keys older than this step's and the plan are read before begin_kernel(), so that the
// first loads overlap the kernel in front, which writes this step's keys alone.
namespace minfer::cuda {

constexpr int kDecodeWarps = 4;
constexpr int kRingBytes = 24 << 10;  ///< of a warp

template <class Kv, int kHead>
struct DecodeKernel {
  using Fragments = KvFragments<Kv, kHead>;
  using Element = typename Fragments::Element;
  using Rows = typename Fragments::Rows;
  static constexpr int kRowBytes = kHead * static_cast<int>(sizeof(Kv));
  static constexpr int kTileBytes = kChunkKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;  ///< K, then V
  static constexpr int kStages = kRingBytes / kStageBytes;
  static constexpr int kSteps = kHead / 16;
  static constexpr int kJoinStride = kHead + 4;  ///< of a head: spreads a fragment's stores over the banks

  struct Shared {
    char ring[kDecodeWarps][kStages][kStageBytes];
    float value[kDecodeWarps][kUnitHeads][kJoinStride];
    float max[kDecodeWarps][kUnitHeads];
    float sum[kDecodeWarps][kUnitHeads];
    int32_t arrived;
  };

  /// A place in the line of all chunks.
  struct Cursor {
    int32_t line;
    int32_t sequence;
    int32_t unit;
    int32_t chunk;
    int32_t chunks;
    int32_t context;
  };

  /// A warp's softmax so far: fragments of O^T, and of each of a lane's two query heads the largest score
  /// and, of this lane's keys, the sum of the weights.
  struct Softmax {
    float value[kSteps][4];
    float max[2];
    float sum[2];
  };

  const DecodeParams& p;
  Shared& shared;
  const int32_t end;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  __device__ void enter_unit(Cursor& cursor) const {
    if (++cursor.unit < p.units) return;
    cursor.unit = 0;
    cursor.context = __ldcg(p.context_len + ++cursor.sequence);
    cursor.chunks = max(1, (cursor.context + kChunkKeys - 1) / kChunkKeys);
  }

  __device__ void advance(Cursor& cursor, int32_t count) const {
    cursor.line += count;
    cursor.chunk += count;
    while (cursor.line < end && cursor.chunk >= cursor.chunks) {
      cursor.chunk -= cursor.chunks;
      enter_unit(cursor);
    }
  }

  /// The row in the cache of key lane % 16 of the cursor's chunk, or -1 beyond the context.
  __device__ int32_t find_row(const Cursor& cursor) const {
    const int32_t position = cursor.chunk * kChunkKeys + lane % kChunkKeys;
    if (cursor.line >= end || position >= cursor.context) return -1;
    const BlockOffset place = block_offset(p.cache, position);
    const int32_t block = __ldcg(p.block_table + int64_t{cursor.sequence} * p.max_blocks + place.block);
    return static_cast<int32_t>(
        kv_row(p.cache, block, cursor.unit / p.per_kv_head.per_kv_head, place.offset));
  }

  /// Begins to copy a chunk whose keys are in `row` of lanes 0 to 15.
  __device__ void copy_chunk(int stage, int32_t row) const {
    const uint32_t tile = shared_address(shared.ring[warp][stage]);
#pragma unroll
    for (int i = 0; i < kTileBytes / (16 * 32); ++i) {
      const int key = (i * 32 + lane) / Rows::kPieces;
      const int piece = (i * 32 + lane) % Rows::kPieces;
      const int32_t from = __shfl_sync(~0u, row, key);
      const int64_t offset = int64_t{max(from, 0)} * kRowBytes + piece * 16;
      const uint32_t to = tile + Rows::offset(key, piece);
      copy_async(to, static_cast<const char*>(p.k) + offset, from >= 0);
      copy_async(to + kTileBytes, static_cast<const char*>(p.v) + offset, from >= 0);
    }
  }

  __device__ int32_t first_head(const Cursor& cursor) const {
    return cursor.unit / p.per_kv_head.per_kv_head * p.group +
           cursor.unit % p.per_kv_head.per_kv_head * p.per_kv_head.query_heads;
  }
  __device__ int32_t num_heads(const Cursor& cursor) const {
    const int32_t first = cursor.unit % p.per_kv_head.per_kv_head * p.per_kv_head.query_heads;
    return min(p.per_kv_head.query_heads, p.group - first);
  }

  /// Q^T of a unit: columns beyond its query heads are 0.
  __device__ void load_query(const Cursor& cursor, uint32_t (&q)[kSteps][2]) const {
    const bool used = lane_group() < num_heads(cursor);
    const int64_t head = used ? first_head(cursor) + lane_group() : 0;
    const __nv_bfloat16* row =
        static_cast<const __nv_bfloat16*>(p.qkv) + cursor.sequence * p.qkv_stride + head * kHead;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto pair = *reinterpret_cast<const __nv_bfloat162*>(row + Fragments::dim_of_query(step, half));
        const float2 values = __bfloat1622float2(pair);
        q[step][half] = used ? pack<Element>(values.x, values.y) : 0u;
      }
    }
  }

  /// Adds the 16 keys from `first_key` on, of which those below `context` count.
  __device__ void add_chunk(uint32_t tile, int32_t first_key, int32_t context, const uint32_t (&q)[kSteps][2],
                            Softmax& softmax) const {
    float score[2][4] = {};  // keys lane_group(), + 8; query heads 2 lane_in_group(), + 1
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < kHead / 32; ++i) {
      Fragments::load_keys(a, tile, i);
      multiply_add<Element>(score[0], a[0], q[2 * i][0], q[2 * i][1]);
      multiply_add<Element>(score[1], a[1], q[2 * i + 1][0], q[2 * i + 1][1]);
    }
    const int32_t key = first_key + lane_group();
    float weight[4], factor[2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weight[i] = key + i / 2 * 8 < context ? (score[0][i] + score[1][i]) * p.scale_log2 : -INFINITY;
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float max = fmaxf(weight[head], weight[head + 2]);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2)
        max = fmaxf(max, __shfl_xor_sync(~0u, max, distance));
      max = fmaxf(max, softmax.max[head]);
      const float base = max == -INFINITY ? 0.0f : max;
      factor[head] = exp2_approx(softmax.max[head] - base);
      weight[head] = exp2_approx(weight[head] - base);
      weight[head + 2] = exp2_approx(weight[head + 2] - base);
      softmax.max[head] = max;
      softmax.sum[head] = softmax.sum[head] * factor[head] + weight[head] + weight[head + 2];
    }
    const uint32_t low = transpose_matrix(pack<Element>(weight[0], weight[1]));
    const uint32_t high = transpose_matrix(pack<Element>(weight[2], weight[3]));
#pragma unroll
    for (int i = 0; i < kHead / 32; ++i) {
      Fragments::load_values(a, tile + kTileBytes, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&value)[4] = softmax.value[2 * i + half];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          value[j] *= factor[j % 2];
        multiply_add<Element>(value, a[half], low, high);
      }
    }
  }

  /// Puts a warp's softmax where the block joins them.
  __device__ void share_softmax(Softmax& softmax) const {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2)
        softmax.sum[head] += __shfl_xor_sync(~0u, softmax.sum[head], distance);
      const int at = 2 * lane_in_group() + head;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
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
    const float inverse = part.sum > 0.0f ? 1.0f / part.sum : 0.0f;
    const uint2 packed = {pack<__nv_bfloat16>(part.value.x * inverse, part.value.y * inverse),
                          pack<__nv_bfloat16>(part.value.z * inverse, part.value.w * inverse)};
    __nv_bfloat16* row = static_cast<__nv_bfloat16*>(p.out) + cursor.sequence * p.out_stride +
                         int64_t{first_head(cursor) + head} * kHead;
    *reinterpret_cast<uint2*>(row + dim) = packed;
  }

  /// A block writes at most one segment that goes on from the block before it and one that begins in it.
  __device__ DecodePartial<kHead>& partial(int32_t share, bool begins) const {
    return static_cast<DecodePartial<kHead>*>(p.partials)[2 * share + (begins ? 1 : 0)];
  }

  /// Joins the warps' parts of the segment from `cursor` to `segment_end`.
  __device__ void finish_segment(const Cursor& cursor, int32_t segment_end, int32_t share) {
    const int32_t unit_begin = cursor.line - cursor.chunk;
    const bool whole = cursor.chunk == 0 && segment_end == unit_begin + cursor.chunks;
    const int32_t items = num_heads(cursor) * (kHead / 4);
    __syncthreads();
    for (auto item = static_cast<int32_t>(threadIdx.x); item < items; item += kDecodeWarps * 32) {
      const int head = item / (kHead / 4), dim = item % (kHead / 4) * 4;
      Part part;
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) {
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
    if (!whole) merge_if_last(cursor, unit_begin, share, items);
    __syncthreads();
  }

  __device__ void merge_if_last(const Cursor& cursor, int32_t unit_begin, int32_t share, int32_t items) {
    const int32_t first = unit_begin / share;
    const int32_t last = (unit_begin + cursor.chunks - 1) / share;
    int32_t* counter = p.counters + cursor.sequence * p.units + cursor.unit;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) shared.arrived = atomicAdd(counter, 1);
    __syncthreads();
    if (shared.arrived != last - first) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;  // for the next launch
    for (auto item = static_cast<int32_t>(threadIdx.x); item < items; item += kDecodeWarps * 32) {
      const int head = item / (kHead / 4), dim = item % (kHead / 4) * 4;
      Part part;
#pragma unroll 4
      for (int32_t i = first; i <= last; ++i) {
        const DecodePartial<kHead>& from = partial(i, i == first);
        const float2 max_sum = __ldcg(&from.max_sum[head]);
        part.add(max_sum.x, max_sum.y, __ldcg(reinterpret_cast<const float4*>(&from.value[head][dim])));
      }
      write_result(cursor, head, dim, part);
    }
  }

  __device__ void run(const DecodeShare& mine, const Stamp& stamp) {
    Cursor segment{mine.begin, mine.sequence, mine.unit,
                   mine.chunk, mine.chunks,   __ldcg(p.context_len + mine.sequence)};
    Cursor fetch = segment;
    advance(fetch, warp);
    int32_t row = find_row(fetch);
    bool begun = false;
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (!begun && fetch.line < end && fetch.chunk == fetch.chunks - 1) {  // has this step's key
        begin_kernel(stamp);
        begun = true;
      }
      copy_chunk(stage, row);
      commit_copies();
      advance(fetch, kDecodeWarps);
      row = find_row(fetch);
    }
    if (!begun) begin_kernel(stamp);
    allow_next_kernel();

    int stage = 0;
    int32_t line = mine.begin + warp;
    while (segment.line < end) {
      const int32_t unit_begin = segment.line - segment.chunk;
      const int32_t segment_end = min(end, unit_begin + segment.chunks);
      uint32_t q[kSteps][2];
      load_query(segment, q);
      Softmax softmax{{}, {-INFINITY, -INFINITY}, {}};
      for (; line < segment_end; line += kDecodeWarps) {
        __syncwarp();
        copy_chunk(stage == 0 ? kStages - 1 : stage - 1, row);
        commit_copies();
        advance(fetch, kDecodeWarps);
        row = find_row(fetch);
        wait_copies<kStages - 1>();
        __syncwarp();
        add_chunk(shared_address(shared.ring[warp][stage]), (line - unit_begin) * kChunkKeys, segment.context,
                  q, softmax);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      share_softmax(softmax);
      finish_segment(segment, segment_end, mine.share);
      segment.line = segment_end;
      segment.chunk = 0;
      if (segment_end < end) enter_unit(segment);
    }
  }
};

template <class Kv, int kHead>
__global__ __launch_bounds__(kDecodeWarps * 32,
                             kDecodeBlocksPerSm) void attention_decode_kernel(DecodeParams p, Stamp stamp) {
  extern __shared__ __align__(128) char memory[];
  using Kernel = DecodeKernel<Kv, kHead>;
  const auto* words = reinterpret_cast<const int4*>(p.shares + blockIdx.x);
  const int4 first = __ldcg(words), second = __ldcg(words + 1);
  const DecodeShare mine{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  if (mine.begin == mine.end) {
    begin_kernel(stamp);
    return;
  }
  Kernel{p, *reinterpret_cast<typename Kernel::Shared*>(memory), mine.end}.run(mine, stamp);
}

template <class Kv, int kHead>
void launch_decode_kernel(Launch& launch, const DecodeParams& params, int32_t num_shares) {
  using Shared = typename DecodeKernel<Kv, kHead>::Shared;
  static_assert(sizeof(Shared) <= kTensorCoreSharedBytes);
  launch("attention", attention_decode_kernel<Kv, kHead>, dim3(static_cast<unsigned>(num_shares)),
         dim3(kDecodeWarps * 32), sizeof(Shared), params);
}

template <class Kv>
void attention_decode(Launch& launch, const DecodeParams& params, int32_t head_size, int32_t num_shares) {
  if (head_size == 64) return launch_decode_kernel<Kv, 64>(launch, params, num_shares);
  if (head_size == 128) return launch_decode_kernel<Kv, 128>(launch, params, num_shares);
  unsupported("attention", "a head size of 64 or 128", std::to_string(head_size));
}

}  // namespace minfer::cuda
