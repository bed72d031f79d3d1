#include <algorithm>

#include <cuda_bf16.h>

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/dtype.h"

// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n].
//
// W [N, K] f32, row-major; x [tokens, K] bf16; out [tokens, N] f32 or bf16.
//
// A weight is split when it is loaded: w = high + middle + low, each a bf16 (24 bits of mantissa in three times eight). Three products
// of mma.m16n8k16 are added up in f32. A block has 32 rows and 32 tokens: two tiles of 16 rows, with four warps each that take chunks
// of 32 columns in turn and add up at the end, in one order. On both sides, columns are in the order in which lanes load 16 bytes of x.
//
// Bytes from the L2: W once for 32 tokens, x once for 32 rows. It is made for routers of experts: 128 rows, for
// which f32 arithmetic without tensor cores would take 80 us with 2,048 tokens of 2,048 columns.
namespace minfer::cuda {
namespace {

constexpr int kRowTiles = 2;
constexpr int kKParts = 4;
constexpr int kThreads = kRowTiles * kKParts * 32;
constexpr int kBlockRows = 16 * kRowTiles;
constexpr int kTokenTiles = 4;
constexpr int kBlockTokens = 8 * kTokenTiles;
constexpr int kChunkCols = 32;
constexpr int kLaneCols = 8;  ///< in a chunk
constexpr int64_t kMaxGridY = 65535;

template <class Out>
struct Args {
  const float* weight;
  const __nv_bfloat16* x;
  const float* bias;
  Out* out;
  int64_t rows, cols, tokens, x_stride, out_stride;
  bool add_to_out;
};

/// Pairs of bf16 that sum to the two weights.
struct SplitPair {
  uint32_t part[3];

  __device__ __forceinline__ SplitPair(float a, float b) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const __nv_bfloat162 rounded = __floats2bfloat162_rn(a, b);
      part[i] = reinterpret_cast<const uint32_t&>(rounded);
      a -= __uint_as_float(part[i] << 16);
      b -= __uint_as_float(part[i] & 0xffff0000u);
    }
  }
};

/// A lane's columns of a chunk: in rows g and g + 8, and in a token of each tile.
struct Chunk {
  float4 weight[2][2];
  uint4 x[kTokenTiles];

  template <class Out>
  __device__ __forceinline__ void load(const Args<Out>& args, int64_t row, int64_t token, int64_t col) {
    const bool valid = col < args.cols;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* from =
          reinterpret_cast<const float4*>(args.weight + min(row + 8 * half, args.rows - 1) * args.cols + col);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        weight[half][i] = valid ? from[i] : float4{};
    }
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
      const int64_t at = min(token + 8 * tile, args.tokens - 1) * args.x_stride + col;
      x[tile] = valid ? *reinterpret_cast<const uint4*>(args.x + at) : uint4{};
    }
  }

  __device__ __forceinline__ void multiply(float (&sums)[kTokenTiles][4]) const {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const SplitPair upper_first(weight[0][step].x, weight[0][step].y);
      const SplitPair lower_first(weight[1][step].x, weight[1][step].y);
      const SplitPair upper_second(weight[0][step].z, weight[0][step].w);
      const SplitPair lower_second(weight[1][step].z, weight[1][step].w);
#pragma unroll
      for (int part = 2; part >= 0; --part) {
        const uint32_t a[4] = {upper_first.part[part], lower_first.part[part], upper_second.part[part],
                               lower_second.part[part]};
#pragma unroll
        for (int tile = 0; tile < kTokenTiles; ++tile)
          multiply_add<__nv_bfloat16>(sums[tile], a, step == 0 ? x[tile].x : x[tile].z,
                                      step == 0 ? x[tile].y : x[tile].w);
      }
    }
  }
};

template <class Out>
__global__ void __launch_bounds__(kThreads) split_product_kernel(Args<Out> args, Stamp stamp) {
  __shared__ float shared_sums[kKParts][kRowTiles][4 * kTokenTiles][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_tile = warp % kRowTiles, part = warp / kRowTiles;
  const int64_t first_row = int64_t{blockIdx.x} * kBlockRows,
                first_token = int64_t{blockIdx.y} * kBlockTokens;
  const int64_t row = first_row + 16 * row_tile + lane / 4, token = first_token + lane / 4;
  allow_next_kernel();
  begin_kernel(stamp);

  float sums[kTokenTiles][4] = {};
  constexpr int64_t kStep = kKParts * kChunkCols;
  int64_t col = part * kChunkCols + lane % 4 * kLaneCols;
  Chunk next;
  next.load(args, row, token, col);
  for (int64_t first = part * kChunkCols; first < args.cols; first += kStep) {
    const Chunk chunk = next;
    col += kStep;
    next.load(args, row, token, col);
    chunk.multiply(sums);
  }
#pragma unroll
  for (int i = 0; i < 4 * kTokenTiles; ++i)
    shared_sums[part][row_tile][i][lane] = sums[i / 4][i % 4];
  __syncthreads();
  for (int i = threadIdx.x; i < kBlockRows * kBlockTokens; i += kThreads) {
    const int block_row = i % kBlockRows, block_token = i / kBlockRows;
    const int64_t out_row = first_row + block_row, out_token = first_token + block_token;
    if (out_row >= args.rows || out_token >= args.tokens) continue;
    const int in_tile = block_row % 16, place = block_token % 8;
    const int index = block_token / 8 * 4 + in_tile / 8 * 2 + place % 2, from = in_tile % 8 * 4 + place / 2;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kKParts; ++k)
      sum += shared_sums[k][block_row / 16][index][from];
    if (args.bias != nullptr) sum += args.bias[out_row];
    Out& out = args.out[out_token * args.out_stride + out_row];
    out = from_f32<Out>(args.add_to_out ? to_f32(out) + sum : sum);
  }
}

template <class Out>
void launch_split(Launch& launch, const Product& p) {
  constexpr int64_t kMostTokens = kMaxGridY * kBlockTokens;
  for (int64_t token = 0; token < p.x.rows; token += kMostTokens) {
    const Args<Out> args{.weight = static_cast<const float*>(p.weight.data),
                         .x = static_cast<const __nv_bfloat16*>(p.x.data) + token * p.x.stride,
                         .bias = p.bias,
                         .out = static_cast<Out*>(p.out.data) + token * p.out.stride,
                         .rows = p.weight.rows,
                         .cols = p.weight.cols,
                         .tokens = std::min(p.x.rows - token, kMostTokens),
                         .x_stride = p.x.stride,
                         .out_stride = p.out.stride,
                         .add_to_out = p.add_to_out};
    const dim3 grid(static_cast<unsigned>((args.rows + kBlockRows - 1) / kBlockRows),
                    static_cast<unsigned>((args.tokens + kBlockTokens - 1) / kBlockTokens));
    launch("split_product", split_product_kernel<Out>, grid, kThreads, 0, args);
  }
}

}  // namespace

void split_product(Launch& launch, const Product& p) {
  p.out.dtype == DType::f32 ? launch_split<float>(launch, p) : launch_split<__nv_bfloat16>(launch, p);
}

}  // namespace minfer::cuda
