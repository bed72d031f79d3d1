#pragma once

#include "kernels/cuda/moe/routes/moe_routes.cuh"
#include "kernels/cuda/product/operands/tile_fragments.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Products of experts (see MoeProduct) on tensor cores: x bf16, weights bf16 or quantised.
///
/// A persistent block takes a batch of routes (at most 8 times kTokenTiles) and strips of 16 rows, of gate and
/// of up. `splits` of its eight warps share a strip: chunk c of K goes to split c % splits, and the partial
/// sums meet in shared memory in one order. Weights are the A operand of mma.m16n8k16, routes are its columns;
/// missing columns of a batch repeat its last route. A warp keeps kStages chunks in flight from memory into
/// registers. A block does not know its expert before the kernels in front have ended, so nothing is loaded
/// before begin_kernel().
///
/// Quantised weights are exact: the sum over each group of columns with one scale is scaled in f32.
///
/// Bytes: the weights of the experts in use once for each batch, x from the caches once for each strip.
namespace minfer::cuda {

inline constexpr int kMoeWarps = 8;
inline constexpr int kMoeBlocksPerSm = 2;

/// Row g = lane / 4 of each token tile.
template <int kTokenTiles>
struct TokenRows {
  const __nv_bfloat16* at[kTokenTiles];
};

/// A chunk of a strip in the registers of a warp: 256 columns of a quantised type.
template <DType type>
struct StripChunk {
  static constexpr int kCols = kTileCols;
  static constexpr bool kHasMinima = Tile<type>::kHasMinima;
  static constexpr int kScaleCols = Tile<type>::kScaleCols;
  TileRegisters<type> tile;

  __device__ __forceinline__ void load(const void* matrix, const MoeProduct& p, int strip, int chunk,
                                       int lane) {
    const int64_t index = strip * tiles_of(p.cols) + chunk;
    tile = TileRegisters<type>(static_cast<const char*>(matrix) + index * Tile<type>::kBytes, lane);
  }

  template <int kTokenTiles>
  __device__ __forceinline__ void multiply(const TokenRows<kTokenTiles>& x, const MoeProduct& p, int chunk,
                                           int lane, float (&sums)[kTokenTiles][4]) const {
    const TileScales<type> scales(tile);
    const int first = chunk * kCols + 2 * (lane % 4);
    constexpr int kOperands = kScaleCols / 16;
#pragma unroll
    for (int group = 0; group < kCols / kScaleCols; ++group) {
      uint32_t a[kOperands][4];
#pragma unroll
      for (int i = 0; i < kOperands; ++i)
        tile_operand<type, true>(tile, kOperands * group + i, a[i]);
      const float scale[2] = {of_group<type>(scales.scale[0], group), of_group<type>(scales.scale[1], group)};
      float min[2] = {};
      if constexpr (kHasMinima) {
        min[0] = of_group<type>(scales.min[0], group);
        min[1] = of_group<type>(scales.min[1], group);
      }
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        float c[4] = {};
        float x_sums[4] = {};
#pragma unroll
        for (int i = 0; i < kOperands; ++i) {
          const int k = first + kScaleCols * group + 16 * i;
          const uint2 b = k < p.cols ? x_operand(x.at[t] + k) : uint2{};
          multiply_add<__nv_bfloat16>(c, a[i], b.x, b.y);
          constexpr uint32_t kOnes = 0x3f803f80u;
          if constexpr (kHasMinima)
            multiply_add<__nv_bfloat16>(x_sums, {kOnes, kOnes, kOnes, kOnes}, b.x, b.y);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[t][j] = fmaf(scale[j / 2], c[j], sums[t][j]);
          if constexpr (kHasMinima) sums[t][j] = fmaf(-min[j / 2], x_sums[j % 2], sums[t][j]);
        }
      }
    }
  }
};

/// bf16: 128 columns. A lane has columns 8 t ... 8 t + 7 of each 32, in rows g and g + 8.
template <>
struct StripChunk<DType::bf16> {
  static constexpr int kCols = 128;
  static constexpr int kSteps = kCols / 32;
  uint4 weights[2][kSteps];

  __device__ __forceinline__ void load(const void* matrix, const MoeProduct& p, int strip, int chunk,
                                       int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(strip * kStripRows + lane / 4 + 8 * half, p.rows - 1);
      const auto* at = static_cast<const __nv_bfloat16*>(matrix) + static_cast<int64_t>(row) * p.cols;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int k = chunk * kCols + 32 * i + 8 * (lane % 4);
        weights[half][i] = k < p.cols ? __ldcs(reinterpret_cast<const uint4*>(at + k)) : uint4{};
      }
    }
  }

  template <int kTokenTiles>
  __device__ __forceinline__ void multiply(const TokenRows<kTokenTiles>& x, const MoeProduct& p, int chunk,
                                           int lane, float (&sums)[kTokenTiles][4]) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int k = chunk * kCols + 32 * i + 8 * (lane % 4);
      const uint4& low = weights[0][i];
      const uint4& high = weights[1][i];
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint4 b = k < p.cols ? *reinterpret_cast<const uint4*>(x.at[t] + k) : uint4{};
        multiply_add<__nv_bfloat16>(sums[t], {low.x, high.x, low.y, high.y}, b.x, b.y);
        multiply_add<__nv_bfloat16>(sums[t], {low.z, high.z, low.w, high.w}, b.z, b.w);
      }
    }
  }
};

/// The warps' sums of a strip: route i / 16, row i % 16.
template <int kTokenTiles, int kMatrices>
using MoePartials = float[kMatrices][kMoeWarps][8 * kTokenTiles * kStripRows];

template <int kTokenTiles>
__device__ __forceinline__ void store_sums(float (&sums)[kTokenTiles][4], int lane, float* partials) {
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = 8 * t + 2 * (lane % 4) + j % 2;
      partials[column * kStripRows + lane / 4 + 8 * (j / 2)] = sums[t][j];
      sums[t][j] = 0.0f;
    }
  }
}

/// Divides the warps of a block over strips.
struct StripSplit {
  int splits;  ///< warps that share a strip; each has two chunks or more if K has enough
  int strips;  ///< of a block

  __host__ __device__ explicit StripSplit(int chunks) : splits(kMoeWarps) {
    while (splits > 1 && chunks < 2 * splits)
      splits /= 2;
    strips = kMoeWarps / splits;
  }
};

template <int kTokenTiles, int kMatrices>
__device__ __forceinline__ void write_strips(const MoeProduct& p, const ExpertBatch& batch, int first_strip,
                                             const StripSplit& split,
                                             const MoePartials<kTokenTiles, kMatrices>& partials) {
  const int elements = batch.count * kStripRows;
  for (auto at = static_cast<int>(threadIdx.x); at < split.strips * elements; at += kMoeWarps * 32) {
    const int strip = at / elements;
    const int i = at % elements;
    const int row = (first_strip + strip) * kStripRows + i % kStripRows;
    if (row >= p.rows) continue;
    float values[kMatrices] = {};
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      for (int w = 0; w < split.splits; ++w)
        values[m] += partials[m][strip * split.splits + w][i];
    }
    const int32_t route = route_at(p, batch, i / kStripRows);
    const float value = kMatrices == 2
                            ? gated<false>(p, route, batch.expert, row, values[0], values[kMatrices - 1])
                            : values[0];
    store_route(p, route, row, value);
  }
}

template <DType type, int kTokenTiles, int kMatrices>
__global__ void __launch_bounds__(kMoeWarps * 32, kMoeBlocksPerSm)
    moe_strip_kernel(const __grid_constant__ MoeProduct p, Stamp stamp) {
  using Chunk = StripChunk<type>;
  constexpr int kStages = 2;
  __shared__ MoePartials<kTokenTiles, kMatrices> partials;
  begin_kernel(stamp);
  allow_next_kernel();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int strips = (p.rows + kStripRows - 1) / kStripRows;
  const int chunks = (p.cols + Chunk::kCols - 1) / Chunk::kCols;
  const StripSplit split(chunks);
  const int part = warp % split.splits;
  const int groups = (strips + split.strips - 1) / split.strips;
  const int units = num_batches(p).all * groups;
  for (auto unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
    const ExpertBatch batch = batch_at(p, unit / groups);
    const int first_strip = unit % groups * split.strips;
    const int strip = first_strip + warp / split.splits;
    const int own_chunks = strip < strips ? (chunks - part + split.splits - 1) / split.splits : 0;
    const int steps = own_chunks * kMatrices;
    const auto chunk_of = [&](int step) { return step % own_chunks * split.splits + part; };
    const auto load = [&](Chunk& chunk, int step) {
      if (step >= steps) return;
      const void* first = kMatrices == 2 && step >= own_chunks ? p.up : p.weight;
      chunk.load(static_cast<const char*>(first) + batch.expert * p.matrix_bytes, p, strip, chunk_of(step),
                 lane);
    };
    Chunk ring[kStages];
#pragma unroll
    for (int s = 0; s < kStages; ++s)
      load(ring[s], s);
    TokenRows<kTokenTiles> x;
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      const int32_t route = route_at(p, batch, min(8 * t + lane / 4, batch.count - 1));
      x.at[t] = static_cast<const __nv_bfloat16*>(p.x) + route / p.routes_per_x * p.x_stride;
    }
    float sums[kTokenTiles][4] = {};
    for (int first = 0; first < steps; first += kStages) {
#pragma unroll
      for (int s = 0; s < kStages; ++s) {
        const int step = first + s;
        if (step >= steps) break;
        ring[s].multiply(x, p, chunk_of(step), lane, sums);
        load(ring[s], step + kStages);
        if (kMatrices == 2 && step == own_chunks - 1) store_sums(sums, lane, partials[0][warp]);
      }
    }
    if (kMatrices == 2 && own_chunks == 0) store_sums(sums, lane, partials[0][warp]);
    store_sums(sums, lane, partials[kMatrices - 1][warp]);
    __syncthreads();
    write_strips<kTokenTiles, kMatrices>(p, batch, first_strip, split, partials);
    __syncthreads();
  }
}

template <DType type, int kMatrices>
void launch_moe_strips(Launch& launch, const MoeProduct& p, int token_tiles) {
  const int32_t batches = p.grouped() ? most_batches(p.num_routes, p.experts, 8 * token_tiles) : p.num_routes;
  const StripSplit split((p.cols + StripChunk<type>::kCols - 1) / StripChunk<type>::kCols);
  const int64_t rows = kStripRows * split.strips;
  const int64_t units = int64_t{batches} * ((p.rows + rows - 1) / rows);
  const int64_t blocks = launch.num_sms() * kMoeBlocksPerSm;
  launch(kMatrices == 2 ? "moe_gate_up" : "moe_product",
         token_tiles == 1 ? moe_strip_kernel<type, 1, kMatrices> : moe_strip_kernel<type, 4, kMatrices>,
         static_cast<unsigned>(units < blocks ? units : blocks), kMoeWarps * 32, 0, p);
}

template <int kMatrices>
void moe_strip_product(Launch& launch, const MoeProduct& p, int token_tiles) {
  const auto of_type = [&](auto type) { launch_moe_strips<type, kMatrices>(launch, p, token_tiles); };
  if (p.dtype == DType::bf16) return of_type(std::integral_constant<DType, DType::bf16>{});
  for_type(ExpertTypes{}, "moe_strip_product", p.dtype, of_type);
}

}  // namespace minfer::cuda
