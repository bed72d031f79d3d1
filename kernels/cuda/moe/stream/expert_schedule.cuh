#pragma once

#include "kernels/cuda/moe/routes/group_routes.h"
#include "kernels/cuda/product/stream/stream_schedule.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Products of experts by the stream kernels (stream_product.cuh, tile_stream.cuh): the tiles that blocks multiply, and their outputs.
///
/// The tokens of a tile are a batch of one expert, up to kTokens sorted routes. Blocks take whole tiles in turn. The tiles
/// of an expert are consecutive, and among them those with the same rows: so concurrent blocks share weights and the
/// expert's tokens in the L2. Experts are not known before begin_kernel(); a block loads its next segment one tile ahead.
///
/// A box of tokens may reach into the next expert's: these columns are multiplied but not stored. Each route has its own row of output.
namespace minfer::cuda {

/// output.bias and output.up_bias: experts x [rows].
struct ExpertArgs : StreamArgs {
  RouteGroups groups;
};

template <int kTokens>
struct ExpertSegment {
  static constexpr int32_t first = 0;  ///< stage
  int32_t count;                       ///< stages
  int32_t tile;                        ///< of rows
  int32_t expert;
  int32_t first_token;                  ///< among the sorted routes
  int32_t tokens;                       ///< the tokens that are stored
  int32_t routes[kTokens / kWarpSize];  ///< this lane's route in each 32 tokens
};

template <int kTokens>
class ExpertSchedule {
 public:
  using Args = ExpertArgs;
  using Segment = ExpertSegment<kTokens>;
  static constexpr bool kIsKnownAhead = false;
  static constexpr bool kMayGate = true;

  /// Call it behind begin_kernel().
  __device__ __forceinline__ explicit ExpertSchedule(const ExpertArgs& args)
      : args_(args),
        next_(static_cast<int32_t>(blockIdx.x)),
        end_(args.groups.num_batches->all * args.tiles) {
    load_next();
  }
  __device__ __forceinline__ bool take(Segment& segment) {
    if (next_ >= end_) return false;
    const int32_t place = next_ - of_next_.first_batch * args_.tiles;  // among the expert's tiles
    const int32_t batches = (of_next_.count + kTokens - 1) / kTokens;
    const int32_t done = place % batches * kTokens;
    segment.count = args_.depth;
    segment.tile = place / batches;
    segment.expert = of_next_.expert;
    segment.first_token = of_next_.first + done;
    segment.tokens = min(kTokens, of_next_.count - done);
    const auto lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int i = 0; i < kTokens / kWarpSize; ++i) {
      const int32_t token = min(i * kWarpSize + lane, segment.tokens - 1);
      segment.routes[i] = args_.groups.routes[segment.first_token + token];
    }
    next_ += static_cast<int32_t>(gridDim.x);
    load_next();
    return true;
  }

  /// Stages have the tiles of gate, then the tiles of up.
  static __device__ __forceinline__ int tile_of_warp(int tiles, bool gate_up, int row_group, int warp) {
    return gate_up ? warp / 2 * (tiles / 2) + 2 * row_group + warp % 2 : 4 * row_group + warp;
  }

 private:
  __device__ __forceinline__ void load_next() {
    if (next_ < end_) of_next_ = args_.groups.batches[next_ / args_.tiles];
  }

  const ExpertArgs& args_;
  int32_t next_, end_;
  ExpertRoutes of_next_{};
};

template <class Tile, int kTokens>
__device__ __forceinline__ int32_t first_token_of(const ExpertSegment<kTokens>& segment) {
  return segment.first_token;
}

template <class Tile, class Shared, int kTokens>
__device__ __forceinline__ void finish_segment(const ExpertArgs& args, Shared& shared, int warpgroup,
                                               const ExpertSegment<kTokens>& segment,
                                               const StreamSums<Tile>& sums) {
  store_tile<Tile>(
      args.output, shared, warpgroup, first_row_of<Tile>(segment.tile, warpgroup),
      int64_t{segment.expert} * args.output.rows, segment.tokens, sums, [&]<int kFirst>(int32_t token) {
        return __shfl_sync(kWholeWarp, segment.routes[kFirst / kWarpSize], kFirst % kWarpSize + token);
      });
}

}  // namespace minfer::cuda
