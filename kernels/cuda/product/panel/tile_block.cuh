#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/panel/panel_output.cuh"
#include "kernels/cuda/product/panel/tile_fragments.cuh"

/// Quantised weights with tens of tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu).
///
/// Thread blocks (x: eight times kTokenTiles tokens, y: 128 rows or 64 of gate and of up, z: a part of K).
/// Each of eight warps multiplies a panel of 16 rows with all the tokens, 256 columns at a time: weights come
/// into shared memory of its own, x into that of all, a tile ahead (cp.async). Sums of 32 (q6_k: 16) columns
/// are scaled in f32, so weights are exact.
///
/// The minima of q4_k and q5_k multiply the sums of x over each group. A small kernel in front (sum_groups)
/// leaves those as bf16 and a bf16 remainder in the order of B operands,
///   x_sums [tile][2][tokens, a multiple of 64][8 groups];
/// they come with x and multiply the minima in one mma a tile and eight tokens.
///
/// Where tiles are fewer than SMs, K is divided. Blocks of the same rows leave their sums in `partials`; the
/// last of them adds all in the order of K, whichever came when, so results repeat.
///
/// Bytes: weights once for each block of tokens (from the L2 but for the first), 2 tokens K of x for each 128
/// rows from the L2.
namespace minfer::cuda {

inline constexpr int kBlockWarps = 8;
inline constexpr int kBlockThreads = kBlockWarps * 32;

/// Rows of the sums of x: whole blocks of tokens.
__host__ __device__ constexpr int padded_tokens(int tokens) {
  return (tokens + 63) / 64 * 64;
}

template <DType type, int kTokenTiles>
struct TileBlockShared {
  static constexpr int kXStages = 2;
  static constexpr int kWeightStages = 2;
  /// x of 256 columns; rows 16 bytes further apart than they are long: a warp's reads of four bytes are in 32 banks.
  static constexpr int kXStride = kTileCols + 8;
  alignas(128) __nv_bfloat16 x[kXStages][8 * kTokenTiles][kXStride];
  /// Sums of x over the groups of a tile, and what rounding them left.
  alignas(128) __nv_bfloat16 x_sums[kXStages][2][8 * kTokenTiles][8];
  alignas(128) char weights[kBlockWarps][kWeightStages][Tile<type>::kBytes];
  /// Of a warp's tile: [row][group].
  alignas(16) float scales[kBlockWarps][kPanelRows][type == DType::q6_k ? 16 : 8];
  bool is_last;
};

template <DType type, int kTokenTiles, bool kGateUp>
class TileBlock {
 public:
  using Shared = TileBlockShared<type, kTokenTiles>;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kRows = (kGateUp ? kBlockWarps / 2 : kBlockWarps) * kPanelRows;

  __device__ TileBlock(const PanelArgs& args, Shared& shared) : args_(args), shared_(shared) {
    const int tiles = (args.cols + kTileCols - 1) / kTileCols;
    first_tile_ = tiles * static_cast<int>(blockIdx.z) / static_cast<int>(gridDim.z);
    end_tile_ = tiles * static_cast<int>(blockIdx.z + 1) / static_cast<int>(gridDim.z);
    const int warps = kGateUp ? kBlockWarps / 2 : kBlockWarps;
    panel_ = blockIdx.y * warps + warp_ % warps;
    matrix_ = kGateUp && warp_ >= warps ? args.up : args.weight;
    has_rows_ = panel_ * kPanelRows < args.rows;
  }

  /// Begins the copy of a tile of weights; a group of copies with the x of the same tile.
  __device__ void copy_weights(int tile) {
    if (tile < end_tile_ && has_rows_) {
      copy_tile<type>(shared_.weights[warp_][tile % Shared::kWeightStages], matrix_, args_.cols, panel_, tile,
                      lane_);
    }
  }
  __device__ void copy_x(int tile) {
    if (tile >= end_tile_) return;
    auto& to = shared_.x[tile % Shared::kXStages];
    const int col = 8 * lane_;
    const int k = tile * kTileCols + col;
#pragma unroll
    for (int i = 0; i < kTokens / kBlockWarps; ++i) {
      const int row = i * kBlockWarps + warp_;
      const int token = static_cast<int>(blockIdx.x) * kTokens + row;
      const bool valid = k < args_.cols && token < args_.tokens;
      const int64_t at = valid ? static_cast<int64_t>(token) * args_.x_stride + k : 0;
      copy_async_in_order(&to[row][col], static_cast<const __nv_bfloat16*>(args_.x) + at, valid);
    }
  }

  /// The sums of x over the groups of a tile, 16 bytes a token and half.
  __device__ void copy_x_sums(int tile) {
    if (!Tile<type>::kHasMinima || tile >= end_tile_ || threadIdx.x >= 2 * kTokens) return;
    const int half = threadIdx.x / kTokens;
    const int token = threadIdx.x % kTokens;
    const int64_t row =
        (int64_t{2} * tile + half) * padded_tokens(args_.tokens) + blockIdx.x * kTokens + token;
    copy_async_in_order(shared_.x_sums[tile % Shared::kXStages][half][token], args_.x_sums + 8 * row);
  }

  __device__ void run(const Stamp& stamp) {
    copy_weights(first_tile_);
    begin_kernel(stamp);
    copy_x(first_tile_);
    copy_x_sums(first_tile_);
    commit_copies();
    for (int tile = first_tile_; tile < end_tile_; ++tile) {
      wait_for_copies<0>();
      __syncthreads();  // the tile has come, and all are done with the one before
      copy_weights(tile + 1);
      copy_x(tile + 1);
      copy_x_sums(tile + 1);
      commit_copies();
      if (has_rows_) multiply(tile);
    }
    __syncthreads();
  }

  /// x of a token tile in the order of B operands: lane 4 g + t has its columns of both halves of a group, of token g.
  __device__ uint4 x_operand(int tile, int token_tile, int group) const {
    const auto* at =
        &shared_.x[tile % Shared::kXStages][8 * token_tile + lane_ / 4][32 * group + 2 * (lane_ % 4)];
    const uint2 first = minfer::cuda::x_operand(at), second = minfer::cuda::x_operand(at + 16);
    return {first.x, first.y, second.x, second.y};
  }

  __device__ void multiply(int tile) {
    const TileRegisters<type> weights(shared_.weights[warp_][tile % Shared::kWeightStages], lane_);
    spread_scales(TileScales<type>(weights));
    const auto& scales = shared_.scales[warp_];
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      uint32_t a[2][4];
      tile_operand<type, true>(weights, 2 * group, a[0]);
      tile_operand<type, true>(weights, 2 * group + 1, a[1]);
      float scale[2][2];  // of the two halves of the group, rows g and g + 8
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto& of_row = scales[lane_ / 4 + 8 * row];
        scale[0][row] = of_row[kSixteens ? 2 * group : group];
        if constexpr (kSixteens) scale[1][row] = of_row[2 * group + 1];
      }
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const uint4 b = x_operand(tile, i, group);
        float c[4] = {};
        multiply_add<__nv_bfloat16>(c, a[0], b.x, b.y);
        if constexpr (kSixteens) {
          add_scaled(sums_[i], c, scale[0]);
          c[0] = c[1] = c[2] = c[3] = 0.0f;
        }
        multiply_add<__nv_bfloat16>(c, a[1], b.z, b.w);
        add_scaled(sums_[i], c, scale[kSixteens ? 1 : 0]);
      }
    }
    if constexpr (Tile<type>::kHasMinima) subtract_minima(tile, SixBitScales(weights.scales));
  }

  /// From the lanes that hold them to all of the warp.
  __device__ void spread_scales(const TileScales<type>& held) {
    __syncwarp();
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      auto& of_row = shared_.scales[warp_][lane_ / 4 + 8 * row];
#pragma unroll
      for (int j = 0; j < TileScales<type>::kCount; j += 2) {
        *reinterpret_cast<float2*>(&of_row[4 * j + 2 * (lane_ % 4)]) = {held.scale[row][j],
                                                                        held.scale[row][j + 1]};
      }
    }
    __syncwarp();
  }

  __device__ void subtract_minima(int tile, const SixBitScales& packed) {
    const auto& x_sums = shared_.x_sums[tile % Shared::kXStages];
    const uint32_t a[4] = {packed.minima(0), packed.minima(1), packed.minima(0), packed.minima(1)};
    const float dmin[2] = {packed.dmin(0), packed.dmin(1)};
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int token = 8 * i + lane_ / 4;
      const uint32_t rounded = *reinterpret_cast<const uint32_t*>(&x_sums[0][token][2 * (lane_ % 4)]);
      const uint32_t rest = *reinterpret_cast<const uint32_t*>(&x_sums[1][token][2 * (lane_ % 4)]);
      float c[4] = {};
      multiply_add<__nv_bfloat16>(c, a, rounded, rest);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sums_[i][j] = fmaf(-dmin[j / 2], c[j], sums_[i][j]);
    }
  }

  /// Leaves the sums in `partials`; true in the last block of the rows and tokens, which then has all sums.
  __device__ bool join_splits() {
    if (gridDim.z == 1) return true;
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    auto* partials = reinterpret_cast<float4*>(args_.partials) +
                     static_cast<int64_t>(block) * gridDim.z * kTokenTiles * kBlockThreads + threadIdx.x;
    auto* mine = partials + blockIdx.z * kTokenTiles * kBlockThreads;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i)
      mine[i * kBlockThreads] = {sums_[i][0], sums_[i][1], sums_[i][2], sums_[i][3]};
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned arrived = atomicAdd(args_.arrivals + block, 1u);
      shared_.is_last = arrived + 1 == gridDim.z;
      if (shared_.is_last) args_.arrivals[block] = 0;
    }
    __syncthreads();
    if (!shared_.is_last) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      float4 sum = partials[i * kBlockThreads];
      for (unsigned split = 1; split < gridDim.z; ++split) {
        const float4 more = partials[(split * kTokenTiles + i) * kBlockThreads];
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
      }
      sums_[i][0] = sum.x;
      sums_[i][1] = sum.y;
      sums_[i][2] = sum.z;
      sums_[i][3] = sum.w;
    }
    return true;
  }

  /// Through shared memory, a token's rows together. Without a barrier in flight.
  __device__ void write() {
    constexpr int kStride = kBlockWarps * kPanelRows + 4;
    static_assert(sizeof(shared_.x) >= kTokens * kStride * sizeof(float));
    auto* staged = reinterpret_cast<float*>(&shared_);
    const int row = warp_ * kPanelRows + lane_ / 4;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        staged[(8 * i + 2 * (lane_ % 4) + j % 2) * kStride + row + 8 * (j / 2)] = sums_[i][j];
    }
    __syncthreads();
    const int first_row = blockIdx.y * kRows;
    const int first_token = blockIdx.x * kTokens;
    for (int i = threadIdx.x; i < kTokens * kRows; i += kBlockThreads) {
      const int token = i / kRows;
      const int column = first_row + i % kRows;
      if (first_token + token >= args_.tokens || column >= args_.rows) continue;
      float value = staged[token * kStride + i % kRows];
      if constexpr (kGateUp) {
        value = output_of(args_, column, value, staged[token * kStride + kRows + i % kRows]);
      } else {
        value = output_of(args_, column, value);
      }
      store_output(args_, first_token + token, column, value);
    }
  }

 private:
  static constexpr bool kSixteens = type == DType::q6_k;

  static __device__ __forceinline__ void add_scaled(float (&sums)[4], const float (&c)[4],
                                                    const float (&scale)[2]) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sums[j] = fmaf(scale[j / 2], c[j], sums[j]);
  }

  const PanelArgs& args_;
  Shared& shared_;
  const int warp_ = threadIdx.x / 32;
  const int lane_ = threadIdx.x % 32;
  int first_tile_;
  int end_tile_;
  int panel_;
  const void* matrix_;
  bool has_rows_;
  float sums_[kTokenTiles][4] = {};
};

template <DType type, int kTokenTiles, bool kGateUp>
__global__ void __launch_bounds__(kBlockThreads, 2)
    tile_block_kernel(const __grid_constant__ PanelArgs args, Stamp stamp) {
  using Block = TileBlock<type, kTokenTiles, kGateUp>;
  extern __shared__ __align__(128) char shared_bytes[];
  allow_next_kernel();
  Block block(args, *reinterpret_cast<typename Block::Shared*>(shared_bytes));
  block.run(stamp);
  if (block.join_splits()) block.write();
}

}  // namespace minfer::cuda
