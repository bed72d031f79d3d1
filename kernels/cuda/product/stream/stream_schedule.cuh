#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/stream/stream_bf16.cuh"
#include "kernels/cuda/product/stream/stream_output.cuh"
#include "kernels/cuda/product/stream/tile_pairs.cuh"

/// Divides a product of a stream kernel over blocks, and finishes their sums.
///
/// All multiprocessors get the same work. Many tiles: their stages form one line that is divided evenly, so a block begins
/// and ends within a tile. The block with a tile's end multiplies it first and leaves the sums in memory; the block with
/// the tile's beginning comes to it last and adds them. So no block waits in practice. Few tiles: a cluster divides the
/// columns of each, and its blocks add up the sums in each other's shared memory. The order of sums is fixed either way.
///
/// Many tokens: blocks take whole tiles in turn, those with the same rows one after the other. Concurrent
/// blocks go through K together, and read most of their data from the L2.
///
/// This file has one way, StreamSchedule; products of experts have another (moe/stream/expert_schedule.cuh). A Schedule's Segment is
/// what a block multiplies next. These functions find its data and finish its sums: first_token_of(), copy_rows(), finish_segment().
///
/// A Tile belongs to a kernel: kTokens, kWarpgroups (that have rows of their own), kGateUp, kOutRows,
/// kTogether (rows of gate, then of up), kStoredTokens, kMayCluster. Its Shared has
/// sums[kWarpgroups][kStoredTokens][kStoreStride], and cluster_sums[kWarpgroups][kTokens][kStoreStride] in place of its stages. With
/// kStoresBf16 also rows[kWarpgroups][Bf16Stage::kBytes], with kPairsWarps pairs[kWarpgroups], in place of sums.
namespace minfer::cuda {

struct StreamArgs {
  ProductArgs output;  ///< to finish and store sums; maps bring weights and x
  int32_t depth = 0;   ///< stages of K
  int32_t tiles = 0;   ///< of rows
  int32_t token_blocks = 1;
  int32_t splits = 1;      ///< blocks of a cluster that divide a tile's columns
  bool by_rounds = false;  ///< blocks take whole tiles in turn

  float4* partials = nullptr;  ///< each block's part of tiles that two blocks share
  unsigned* arrivals = nullptr;
};

inline constexpr int kPublishBarrier = 6;  ///< of the first 64 rows; the next rows have the next barriers
inline constexpr int kMostStreamBytes = 227 << 10;  ///< shared memory of a block, on Hopper
inline constexpr int kStreamBytes = 176 << 10;      ///< leaves room for blocks of kernels in between

/// One thread's sums of a warpgroup's rows, as wgmma leaves them.
template <class Tile>
using StreamSums = float[Tile::kTokens / 2];

/// The sums of eight tokens: rows g and g + 8 of two tokens each.
template <class Sums>
__device__ __forceinline__ auto* four_of(Sums& sums, int eighth) {
  return &sums[4 * eighth];
}

/// Consecutive stages of a tile.
struct StreamSegment {
  int32_t tile;  ///< of rows
  int32_t token_block;
  int32_t first;
  int32_t count;
};

/// The work of a block: stages [next, end) of the line of all tiles' stages, or every gridDim-th tile.
class StreamSchedule {
 public:
  using Args = StreamArgs;
  using Segment = StreamSegment;
  static constexpr bool kIsKnownAhead = true;  ///< before begin_kernel(): every block has work
  static constexpr bool kMayGate = true;       ///< the product may be gate and up

  /// The tile of quantised weights in a stage for a warp of the warpgroup with rows 64 `row_group` ....
  static __device__ __forceinline__ int tile_of_warp(int /*tiles*/, bool /*gate_up*/, int row_group,
                                                     int warp) {
    return 4 * row_group + warp;
  }

  __device__ __forceinline__ explicit StreamSchedule(const StreamArgs& args)
      : StreamSchedule(args, static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x)) {}
  /// Block `block` of the product's `blocks`.
  __device__ __forceinline__ StreamSchedule(const StreamArgs& args, int32_t block, int32_t blocks)
      : depth_(args.depth), token_blocks_(args.token_blocks) {
    const int64_t all = int64_t{args.tiles} * token_blocks_ * depth_;
    if (args.splits > 1) {
      const int32_t tile = block / args.splits, part = block % args.splits;
      next_ = tile * depth_ + part * depth_ / args.splits;
      end_ = tile * depth_ + (part + 1) * depth_ / args.splits;
    } else if (args.by_rounds) {
      next_ = block * depth_;
      end_ = static_cast<int32_t>(all);
      skipped_ = (blocks - 1) * depth_;
    } else {
      // A block waits only for a block with a lower index, which has been placed before it.
      const int64_t place = blocks - 1 - block;
      next_ = static_cast<int32_t>(all * place / blocks);
      end_ = static_cast<int32_t>(all * (place + 1) / blocks);
    }
  }
  __device__ __forceinline__ bool take(StreamSegment& segment) {
    if (next_ >= end_) return false;
    const int32_t place = next_ / depth_;
    segment.tile = place / token_blocks_;
    segment.token_block = place % token_blocks_;
    segment.first = next_ % depth_;
    segment.count = min(depth_ - segment.first, end_ - next_);
    next_ += segment.count + skipped_;
    return true;
  }

 private:
  int32_t depth_, token_blocks_, next_, end_;
  int32_t skipped_ = 0;  ///< stages that belong to other blocks' tiles
};

/// Memory between two blocks for the sums of a warpgroup; `place`: of the block with the tile's end.
template <class Tile>
__device__ __forceinline__ float4* partials_of(const StreamArgs& args, int32_t place, int warpgroup) {
  static_assert(Tile::kWarpgroups <= kArrivalsOfSm &&
                Tile::kWarpgroups * kWarpgroupRows * Tile::kTokens * sizeof(float) <= kPartialBytesOfSm);
  return args.partials + (int64_t{place} * Tile::kWarpgroups + warpgroup) * (Tile::kTokens / 8) * 128 +
         threadIdx.x % 128;
}

template <class Tile>
__device__ __forceinline__ void leave_sums(const StreamArgs& args, int warpgroup,
                                           const StreamSums<Tile>& sums) {
  float4* to = partials_of<Tile>(args, static_cast<int32_t>(blockIdx.x), warpgroup);
#pragma unroll
  for (int i = 0; i < Tile::kTokens / 8; ++i) {
    const float* four = four_of(sums, i);
    to[i * 128] = make_float4(four[0], four[1], four[2], four[3]);
  }
  arrive_at(kPublishBarrier + warpgroup, 128 + 32);
}

/// Tells the receiving block that the sums left for it are there. A separate warp does this, since it takes
/// microseconds until the whole device can see them.
template <class Tile>
__device__ __forceinline__ void publish_left_sums(const StreamArgs& args) {
  StreamSchedule schedule(args);
  StreamSegment segment;
  if (args.splits > 1 || !schedule.take(segment) || segment.first == 0) return;
#pragma unroll
  for (int warpgroup = 0; warpgroup < Tile::kWarpgroups; ++warpgroup) {
    barrier_of(kPublishBarrier + warpgroup, 128 + 32);
    if (threadIdx.x % 32 != 0) continue;
    unsigned* arrived = args.arrivals + blockIdx.x * Tile::kWarpgroups + warpgroup;
    __threadfence();
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(arrived) : "memory");
  }
}

template <class Tile>
__device__ __forceinline__ void add_left_sums(const StreamArgs& args, int warpgroup, StreamSums<Tile>& sums) {
  const auto other = static_cast<int32_t>(blockIdx.x) - 1;
  if (threadIdx.x % 128 == 0) {
    unsigned* arrived = args.arrivals + other * Tile::kWarpgroups + warpgroup;
    unsigned value;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(arrived) : "memory");
    } while (value == 0);
    *arrived = 0;
  }
  barrier_of_warpgroup(warpgroup);
  const float4* from = partials_of<Tile>(args, other, warpgroup);
#pragma unroll
  for (int i = 0; i < Tile::kTokens / 8; ++i) {
    const float4 more = __ldcg(from + i * 128);
    float* four = four_of(sums, i);
    four[0] += more.x;
    four[1] += more.y;
    four[2] += more.z;
    four[3] += more.w;
  }
}

/// The blocks of a cluster store some tokens each.
template <class Tile, class Shared>
__device__ __forceinline__ void store_by_cluster(const StreamArgs& args, Shared& shared, int warpgroup,
                                                 int32_t first_row, const StreamSums<Tile>& sums) {
  using Rows = StreamRows<Tile::kGateUp, Tile::kTokens / 2, Tile::kTogether>;
  const Rows rows(args.output, first_row);
  const auto block = static_cast<int32_t>(blockIdx.x) % args.splits;
  const int32_t first = args.output.tokens * block / args.splits;
  const int32_t count = args.output.tokens * (block + 1) / args.splits - first;
  barrier_of_block<Tile::kWarpgroups>();  // all have read the stages, whose memory the sums use
  stage_sums<Tile, 0, Tile::kTokens>(shared.cluster_sums[warpgroup], sums);
  meet_cluster();
  rows.store_of_cluster(shared.cluster_sums[warpgroup], args.splits, first, count);
  meet_cluster();  // no block leaves while others read
}

/// The rows that are stored together.
template <class Tile>
using StoredRows = StreamRows<Tile::kGateUp, Tile::kStoredTokens, Tile::kTogether>;

/// Stores `tokens` tokens of these rows, token kFirst + t to the output's token out_of.operator()<kFirst>(t).
template <class Tile, class Shared, class OutOf>
__device__ __forceinline__ void store_by_groups(Shared& shared, int warpgroup, const StoredRows<Tile>& rows,
                                                int32_t tokens, const StreamSums<Tile>& sums,
                                                const OutOf& out_of) {
  auto& staged = shared.sums[warpgroup % std::extent_v<decltype(Shared::sums)>];
  for_token_groups<Tile>([&]<int kFirst>() {
    if (kFirst >= tokens) return;
    barrier_of_warpgroup(warpgroup);
    stage_sums<Tile, kFirst, Tile::kStoredTokens>(staged, sums);
    barrier_of_warpgroup(warpgroup);
    rows.store(staged, tokens - kFirst,
               [&](int32_t token) { return out_of.template operator()<kFirst>(token); });
  });
}

/// The same for any type of output; biases begin `first_bias` elements further on.
template <class Tile, class Shared, class OutOf>
__device__ __forceinline__ void store_tile(const ProductArgs& output, Shared& shared, int warpgroup,
                                           int32_t first_row, int64_t first_bias, int32_t tokens,
                                           const StreamSums<Tile>& sums, const OutOf& out_of) {
  if constexpr (Tile::kPairsWarps) {
    if (!output.out_is_f32)
      return store_pairs<Tile>(shared.pairs[warpgroup], warpgroup, output, first_row, first_bias, tokens,
                               sums, out_of);
  }
  if constexpr (Tile::kStoresBf16) {
    if (!output.out_is_f32)
      return store_bf16<Tile>(shared.rows[warpgroup], warpgroup, output, first_row, first_bias, tokens, sums,
                              out_of);
  }
  store_by_groups<Tile>(shared, warpgroup, StoredRows<Tile>(output, first_row, first_bias), tokens, sums,
                        out_of);
}

template <class Tile>
__device__ __forceinline__ int32_t first_token_of(const StreamSegment& segment) {
  return segment.token_block * Tile::kTokens;
}
template <class Tile>
__device__ __forceinline__ int32_t first_row_of(int32_t tile, int warpgroup) {
  return tile * Tile::kOutRows + warpgroup * (Tile::kOutRows / Tile::kWarpgroups);
}

/// Finishes a segment's sums.
template <class Tile, class Shared>
__device__ __forceinline__ void finish_segment(const StreamArgs& args, Shared& shared, int warpgroup,
                                               const StreamSegment& segment, StreamSums<Tile>& sums) {
  const int32_t first_row = first_row_of<Tile>(segment.tile, warpgroup);
  if (Tile::kMayCluster && args.splits > 1) {
    if constexpr (Tile::kMayCluster) store_by_cluster<Tile>(args, shared, warpgroup, first_row, sums);
  } else if (segment.first > 0) {
    leave_sums<Tile>(args, warpgroup, sums);
  } else {
    if (segment.count < args.depth) add_left_sums<Tile>(args, warpgroup, sums);
    const int32_t first_token = first_token_of<Tile>(segment);
    store_tile<Tile>(args.output, shared, warpgroup, first_row, 0, args.output.tokens - first_token, sums,
                     [=]<int kFirst>(int32_t token) { return first_token + kFirst + token; });
  }
}

}  // namespace minfer::cuda
