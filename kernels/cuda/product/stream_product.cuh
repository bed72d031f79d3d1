#pragma once

#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/product/stream_output.cuh"
#include "kernels/cuda/product/stream_plan.h"

/// bf16 weights past tokens on Hopper's tensor cores (wgmma), bulk copies (TMA) bringing both.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or silu(Wg x) * (Wu x).
///
/// The product is computed as out^T = W x^T: 64 rows of weights are what wgmma takes, and tokens, of which there are few, its N. A block has a producer, one thread that keeps kStages boxes of 64 columns of weights and x on their way, and one or two
/// warpgroups that multiply 64 rows each. Weights of the first stages are asked for before begin_kernel(): they depend on no kernel before.
///
/// gate_up: rows come as eight of gate, eight of up in turn (one box of a map of four dimensions).
///
/// All multiprocessors get the same work. Many tiles: their stages stand in one line, which is divided evenly, so that a block begins
/// and ends within a tile. Who has a tile's end does it first and leaves the sums in memory for who has its beginning, and comes to that
/// last: nobody waits in practice. Few tiles: a cluster divides the columns of each, and its blocks add up what they find in each
/// other's shared memory. Either way the order of sums is fixed.
///
/// Many tokens: blocks take whole tiles in turn, of 256 tokens, those of the same rows one after the other: all that run at a time go
/// through K together, and read most of what they need from the L2.
///
/// Bytes: weights once, 2 rows cols; x once a row of tiles, from the L2: 2 tokens cols rows / tile rows.
namespace minfer::cuda {

struct StreamArgs {
  PanelArgs output;   ///< only what is stored
  int32_t depth = 0;  ///< stages of K
  int32_t tiles = 0;  ///< of rows
  int32_t token_blocks = 1;
  int32_t splits = 1;      ///< blocks of a cluster that divide a tile's columns
  bool by_rounds = false;  ///< blocks take whole tiles in turn

  float4* partials = nullptr;  ///< of tiles that two blocks share, for each block
  unsigned* arrivals = nullptr;
};

inline constexpr int kMostStreamBytes = 227 << 10;  ///< shared memory of a block, on Hopper

template <int kTokens_, int kWarpgroups_, bool kGateUp_>
struct StreamTile {
  static constexpr int kTokens = kTokens_;          ///< 8 to 128, or 256
  static constexpr int kWarpgroups = kWarpgroups_;  ///< of 64 rows each
  static constexpr bool kGateUp = kGateUp_;

  static constexpr int kColumns = kTokens < 128 ? kTokens : 128;  ///< of a product of a warpgroup
  static constexpr bool kMayCluster = kTokens <= 128;             ///< larger tiles have no registers for it
  /// Sums that take more registers than each thread has of its own: the producer is a warpgroup, which has registers to give.
  static constexpr bool kTakesRegisters = kTokens >= 128 && kWarpgroups == 2;
  static constexpr int kThreads = 128 * kWarpgroups + (kTakesRegisters ? 128 : 32);
  static constexpr int kRows = kWarpgroupRows * kWarpgroups;  ///< of weights; gate and up have half each
  static constexpr int kOutRows = kGateUp ? kRows / 2 : kRows;
  static constexpr int kWeightBytes = kRows * kPanelRowBytes;
  static constexpr int kXBytes = kTokens * kPanelRowBytes;
  /// Tokens that are stored at a time, without a cluster.
  static constexpr int kStoredTokens = kTokens < 32 ? kTokens : 128 / kWarpgroups == kTokens ? 16 : 32;
  static constexpr int kStoreBytes = kWarpgroups * kStoredTokens * kStoreStride * 4;
  static constexpr int kSharedBytes = kTokens > 128 ? kMostStreamBytes : kNeededSharedBytes;
  static constexpr int kStages = (kSharedBytes - kStoreBytes - 1024) / (kWeightBytes + kXBytes);
};

/// The sums of a warpgroup's rows: a thread's, as wgmma leaves them.
template <class Tile>
using StreamSums = float[Tile::kTokens / Tile::kColumns][Tile::kColumns / 2];

/// Those of eight tokens: rows g and g + 8 of two each.
template <class Tile, class Sums>
__device__ __forceinline__ auto* four_of(Sums& sums, int eighth) {
  return &sums[eighth * 8 / Tile::kColumns][4 * (eighth % (Tile::kColumns / 8))];
}

template <class Tile>
struct StreamShared {
  struct Stages {
    alignas(1024) unsigned char weights[Tile::kStages][Tile::kWeightBytes];
    alignas(1024) unsigned char x[Tile::kStages][Tile::kXBytes];
  };
  union {
    Stages stages;
    float cluster_sums[Tile::kWarpgroups][Tile::kTokens][kStoreStride];  ///< when all stages are done
  };
  float sums[Tile::kWarpgroups][Tile::kStoredTokens][kStoreStride];
  SharedBarrier full[Tile::kStages];
  SharedBarrier empty[Tile::kStages];
};

/// Stages of a tile that follow one another.
struct StreamSegment {
  int32_t tile;  ///< of rows
  int32_t token_block;
  int32_t first;
  int32_t count;
};

/// What a block does: stages [next, end) of the line of all tiles' stages, or every gridDim-th tile.
class StreamLine {
 public:
  __device__ __forceinline__ explicit StreamLine(const StreamArgs& args)
      : depth_(args.depth), token_blocks_(args.token_blocks) {
    const auto block = static_cast<int32_t>(blockIdx.x), blocks = static_cast<int32_t>(gridDim.x);
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
      // A block waits only for one of a lower index, which has been placed before it.
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
  int32_t skipped_ = 0;  ///< stages of other blocks' tiles
};

/// Where a ring of stages stands.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <class Tile>
__device__ __forceinline__ void copy_weights(const CUtensorMap& map, StreamShared<Tile>& shared, int stage,
                                             uint64_t policy, int32_t tile, int32_t depth) {
  arrive_expecting(shared.full[stage], Tile::kWeightBytes + Tile::kXBytes);
  if constexpr (Tile::kGateUp) {
    copy_box(shared.stages.weights[stage], map, shared.full[stage], policy, depth * kStageColumns, 0, 0,
             tile * (Tile::kOutRows / 8));
  } else {
    copy_box(shared.stages.weights[stage], map, shared.full[stage], policy, depth * kStageColumns,
             tile * Tile::kRows);
  }
}

template <class Tile>
__device__ __forceinline__ void produce(const StreamArgs& args, const CUtensorMap& weight_map,
                                        const CUtensorMap& x_map, StreamShared<Tile>& shared) {
  const uint64_t once = read_once_policy(), often = read_often_policy();
  StreamLine line(args);
  StreamSegment segment;
  line.take(segment);
  const int32_t ahead = min(Tile::kStages, segment.count);
  for (int32_t i = 0; i < ahead; ++i)
    copy_weights<Tile>(weight_map, shared, i, once, segment.tile, segment.first + i);
  begin_kernel({});
  RingPosition<Tile::kStages> ring;
  int32_t done = 0;
  do {
    for (int32_t i = 0; i < segment.count; ++i, ++done) {
      if (done >= ahead) {
        if (done >= Tile::kStages) wait(shared.empty[ring.stage], ring.parity ^ 1);
        copy_weights<Tile>(weight_map, shared, ring.stage, once, segment.tile, segment.first + i);
      }
      copy_box(shared.stages.x[ring.stage], x_map, shared.full[ring.stage], often,
               (segment.first + i) * kStageColumns, segment.token_block * Tile::kTokens);
      ring.advance();
    }
  } while (line.take(segment));
}

template <class Tile>
__device__ __forceinline__ void multiply_stage(StreamSums<Tile>& sums, uint64_t weights, uint64_t x,
                                               bool adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int column = 0; column < Tile::kTokens / Tile::kColumns; ++column) {
      multiply_panels(sums[column], advanced(weights, 32 * step),
                      advanced(x, column * Tile::kColumns * kPanelRowBytes + 32 * step), adds || step > 0);
    }
  }
}

/// Memory between two blocks for the sums of a warpgroup; `place`: of the one that has the tile's end.
template <class Tile>
__device__ __forceinline__ float4* partials_of(const StreamArgs& args, int32_t place, int warpgroup) {
  return args.partials + (int64_t{place} * Tile::kWarpgroups + warpgroup) * (Tile::kTokens / 8) * 128 +
         threadIdx.x % 128;
}

template <class Tile>
__device__ __forceinline__ void leave_sums(const StreamArgs& args, int warpgroup,
                                           const StreamSums<Tile>& sums) {
  float4* to = partials_of<Tile>(args, static_cast<int32_t>(blockIdx.x), warpgroup);
#pragma unroll
  for (int i = 0; i < Tile::kTokens / 8; ++i) {
    const float* four = four_of<Tile>(sums, i);
    to[i * 128] = make_float4(four[0], four[1], four[2], four[3]);
  }
  __threadfence();
  barrier_of_warpgroup(warpgroup);
  if (threadIdx.x % 128 == 0) {
    unsigned* arrived = args.arrivals + blockIdx.x * Tile::kWarpgroups + warpgroup;
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
    float* four = four_of<Tile>(sums, i);
    four[0] += more.x;
    four[1] += more.y;
    four[2] += more.z;
    four[3] += more.w;
  }
}

/// A cluster's blocks store some tokens each.
template <class Tile>
__device__ __forceinline__ void store_by_cluster(const StreamArgs& args, StreamShared<Tile>& shared,
                                                 int warpgroup, int32_t first_row,
                                                 const StreamSums<Tile>& sums) {
  using Rows = StreamRows<Tile::kGateUp, Tile::kTokens / 2>;
  const Rows rows(args.output, first_row);
  const auto block = static_cast<int32_t>(blockIdx.x) % args.splits;
  const int32_t first = args.output.tokens * block / args.splits;
  const int32_t count = args.output.tokens * (block + 1) / args.splits - first;
  typename Rows::Old old;
  rows.load_old(old, first, count);
  barrier_of_block<Tile::kWarpgroups>();  // all have read the stages, in whose place the sums come
  stage_sums<Tile, 0, Tile::kTokens>(shared.cluster_sums[warpgroup], sums);
  meet_cluster();
  rows.store_of_cluster(shared.cluster_sums[warpgroup], args.splits, first, count, old);
  meet_cluster();  // nobody leaves while others read
}

/// What a group of tokens is added to is asked for while the one before is stored.
template <class Tile>
__device__ __forceinline__ void store_by_groups(const StreamArgs& args, StreamShared<Tile>& shared,
                                                int warpgroup, int32_t first_row, int32_t first_token,
                                                const StreamSums<Tile>& sums) {
  using Rows = StreamRows<Tile::kGateUp, Tile::kStoredTokens>;
  const Rows rows(args.output, first_row);
  const int32_t tokens = args.output.tokens - first_token;
  typename Rows::Old old[2];
  rows.load_old(old[0], first_token, tokens);
  for_token_groups<Tile>([&]<int kFirst>() {
    constexpr int kTurn = kFirst / Tile::kStoredTokens % 2, kNext = kFirst + Tile::kStoredTokens;
    if constexpr (kNext < Tile::kTokens) rows.load_old(old[1 - kTurn], first_token + kNext, tokens - kNext);
    barrier_of_warpgroup(warpgroup);
    stage_sums<Tile, kFirst, Tile::kStoredTokens>(shared.sums[warpgroup], sums);
    barrier_of_warpgroup(warpgroup);
    rows.store(shared.sums[warpgroup], first_token + kFirst, tokens - kFirst, old[kTurn]);
  });
}

template <class Tile>
__device__ __forceinline__ void consume(const StreamArgs& args, StreamShared<Tile>& shared) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const bool is_first_of_warp = threadIdx.x % 32 == 0;
  const uint32_t weights =
      shared_address(shared.stages.weights[0]) + warpgroup * kWarpgroupRows * kPanelRowBytes;
  const uint32_t x = shared_address(shared.stages.x[0]);
  RingPosition<Tile::kStages> ring;
  StreamLine line(args);
  StreamSegment segment;
  while (line.take(segment)) {
    StreamSums<Tile> sums;
    int last = -1;
    for (int32_t i = 0; i < segment.count; ++i) {
      wait(shared.full[ring.stage], ring.parity);
      begin_products();
      multiply_stage<Tile>(sums, panel_operand(weights + ring.stage * Tile::kWeightBytes),
                           panel_operand(x + ring.stage * Tile::kXBytes), i > 0);
      commit_products();
      wait_products<1>();
      if (last >= 0 && is_first_of_warp) arrive(shared.empty[last]);
      last = ring.stage;
      ring.advance();
    }
    wait_products<0>();
    if (is_first_of_warp) arrive(shared.empty[last]);
    const int32_t first_row =
        segment.tile * Tile::kOutRows + warpgroup * (Tile::kOutRows / Tile::kWarpgroups);
    if (Tile::kMayCluster && args.splits > 1) {
      if constexpr (Tile::kMayCluster) store_by_cluster<Tile>(args, shared, warpgroup, first_row, sums);
    } else if (segment.first > 0) {
      leave_sums<Tile>(args, warpgroup, sums);
    } else {
      if (segment.count < args.depth) add_left_sums<Tile>(args, warpgroup, sums);
      store_by_groups<Tile>(args, shared, warpgroup, first_row, segment.token_block * Tile::kTokens, sums);
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    stream_product_kernel(const __grid_constant__ StreamArgs args,
                          const __grid_constant__ CUtensorMap weight_map,
                          const __grid_constant__ CUtensorMap x_map, Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StreamShared<Tile>*>(shared_bytes);
  allow_next_kernel();
  const bool is_producer = threadIdx.x == 128 * Tile::kWarpgroups;
  if (is_producer) {
    prefetch_map(weight_map);
    prefetch_map(x_map);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      make_barrier(shared.full[stage], 1);
      make_barrier(shared.empty[stage], 4 * Tile::kWarpgroups);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128 * Tile::kWarpgroups) {
    if constexpr (Tile::kTakesRegisters) keep_registers<40>();
    is_producer ? produce<Tile>(args, weight_map, x_map, shared) : begin_kernel({});
  } else {
    if constexpr (Tile::kTakesRegisters) take_registers<232>();
    begin_kernel(stamp);
    consume<Tile>(args, shared);
  }
#else
  __trap();
#endif
}

}  // namespace minfer::cuda
