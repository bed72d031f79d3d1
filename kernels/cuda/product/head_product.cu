// out[t, h, n] = sum over k of W[h, n, k] x[t, h, k] on tensor cores, for each head h.
//
//   W     heads x [N, K] in any device layout, rounded to bf16 in shared memory
//   x     [tokens, heads * (K or more)] bf16 or f32, rounded likewise, rows `x_stride` apart; heads `x_head` apart
//   out   [tokens, heads * (N or more)] bf16, heads `out_head` apart
//
// A block takes 64 rows of W of one head and 32 tokens: grid (rows, tokens, heads), so that consecutive blocks share tokens.
// K passes through shared memory in chunks of 128 columns, padded with zeros. W is the products' A, with 16 rows and half of
// the tokens for each warp, and x is their B. The next chunk is loaded while one is multiplied, and the first chunk's weights
// are loaded before the kernels in front have ended. Rows of shared memory are 4 words longer than a multiple of the banks,
// so that no two lanes of a fragment use the same bank. Weights are read once for 32 tokens, x once for 64 rows, from the L2.
#include <cstdint>

#include "kernels/cuda/product/head_product.h"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/vector_io.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/weight_elements.cuh"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

constexpr int kHeadWarps = 8;
constexpr int kHeadThreads = kHeadWarps * kWarpSize;
constexpr int kHeadRows = 64;
constexpr int kHeadTokens = 32;
constexpr int kHeadChunk = 128;
constexpr int kHeadStride = kHeadChunk + 8;  ///< elements from row to row in shared memory

struct HeadProduct {
  const void* weight;
  int64_t matrix_bytes;
  int32_t rows, cols;
  const void* x;
  bool x_is_f32;
  bool x_aligned;  ///< to pairs, with columns a multiple of four
  int64_t x_stride, x_head;
  __nv_bfloat16* out;
  int64_t out_stride, out_head;
  int32_t tokens;
};

__device__ __forceinline__ void store_four(__nv_bfloat16* to, const float4& values) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(values.x, values.y),
                                   __floats2bfloat162_rn(values.z, values.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}

/// Four elements of x from column k on, with `cols` columns left; zeros behind the last.
template <class X>
__device__ __forceinline__ float4 x_four(const X* row, int32_t cols, int32_t k) {
  const auto at = [&](int i) { return i < cols ? to_f32(row[k + i]) : 0.0f; };
  return {at(0), at(1), at(2), at(3)};
}

/// A thread's part of a chunk: four columns each, in rows or tokens kHeadThreads / kFours apart.
constexpr int kFours = kHeadChunk / 4;
template <int kRows>
struct ChunkPart {
  static constexpr int kCount = kRows * kFours / kHeadThreads;
  float4 fours[kCount];

  /// four_at(row, column of the chunk).
  template <class FourAt>
  __device__ __forceinline__ void load(const FourAt& four_at) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int32_t at = static_cast<int32_t>(threadIdx.x) + i * kHeadThreads;
      fours[i] = four_at(at / kFours, at % kFours * 4);
    }
  }
  __device__ __forceinline__ void store(__nv_bfloat16 (&rows)[kRows][kHeadStride]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int32_t at = static_cast<int32_t>(threadIdx.x) + i * kHeadThreads;
      store_four(&rows[at / kFours][at % kFours * 4], fours[i]);
    }
  }
};

template <DType type>
__global__ void __launch_bounds__(kHeadThreads) head_product_kernel(HeadProduct p, Stamp stamp) {
  __shared__ __align__(16) __nv_bfloat16 weights[kHeadRows][kHeadStride];
  __shared__ __align__(16) __nv_bfloat16 tokens[kHeadTokens][kHeadStride];
  constexpr int kWarpTokens = kHeadTokens / 2;
  allow_next_kernel();
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarpSize;
  const int32_t row_group = warp % 4, token_half = warp / 4;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * kHeadRows;
  const int32_t first_token = static_cast<int32_t>(blockIdx.y) * kHeadTokens;
  const auto head = static_cast<int32_t>(blockIdx.z);
  const char* matrix = static_cast<const char*>(p.weight) + head * p.matrix_bytes;
  ChunkPart<kHeadRows> next_weights;
  ChunkPart<kHeadTokens> next_tokens;
  const auto load_weights = [&](int32_t chunk) {
    next_weights.load([&](int32_t row, int32_t k) {
      const bool there = first_row + row < p.rows && chunk + k < p.cols;
      const float4 four =  // read in any case, so that no load waits for a branch
          weight_values<type>(matrix, p.cols, there ? first_row + row : 0, there ? chunk + k : 0);
      return there ? four : float4{};
    });
  };
  const auto load_tokens_from = [&]<class X>(const X* x, int32_t chunk) {
    const auto row_of = [&](int32_t token) {
      return x + (first_token + token) * p.x_stride + head * p.x_head;
    };
    if (!p.x_aligned) {
      return next_tokens.load([&](int32_t token, int32_t k) {
        return first_token + token < p.tokens ? x_four(row_of(token), p.cols - chunk - k, chunk + k)
                                              : float4{};
      });
    }
    next_tokens.load([&](int32_t token, int32_t k) {
      const bool there = first_token + token < p.tokens && chunk + k < p.cols;
      const X* at = row_of(there ? token : 0) + (there ? chunk + k : 0);
      const float2 first = load_pair(at), second = load_pair(at + 2);
      return there ? float4{first.x, first.y, second.x, second.y} : float4{};
    });
  };
  const auto load_tokens = [&](int32_t chunk) {
    p.x_is_f32 ? load_tokens_from(static_cast<const float*>(p.x), chunk)
               : load_tokens_from(static_cast<const __nv_bfloat16*>(p.x), chunk);
  };
  float sums[kWarpTokens / 8][4] = {};
  load_weights(0);
  begin_kernel(stamp);
  load_tokens(0);
  for (int32_t chunk = 0; chunk < p.cols; chunk += kHeadChunk) {
    next_weights.store(weights);
    next_tokens.store(tokens);
    __syncthreads();
    if (chunk + kHeadChunk < p.cols) {
      load_weights(chunk + kHeadChunk);
      load_tokens(chunk + kHeadChunk);
    }
    const auto pair = [](const __nv_bfloat16* at) { return *reinterpret_cast<const uint32_t*>(at); };
#pragma unroll
    for (int32_t k = 0; k < kHeadChunk; k += 16) {
      const int32_t row = 16 * row_group + lane_group(), col = k + 2 * lane_in_group();
      const uint32_t a[4] = {pair(&weights[row][col]), pair(&weights[row + 8][col]),
                             pair(&weights[row][col + 8]), pair(&weights[row + 8][col + 8])};
#pragma unroll
      for (int t = 0; t < kWarpTokens / 8; ++t) {
        const __nv_bfloat16* b = &tokens[kWarpTokens * token_half + 8 * t + lane_group()][col];
        multiply_add<__nv_bfloat16>(sums[t], a, pair(b), pair(b + 8));
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < kWarpTokens / 8; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t token = first_token + kWarpTokens * token_half + 8 * t + 2 * lane_in_group() + i % 2;
      const int32_t row = first_row + 16 * row_group + lane_group() + i / 2 * 8;
      if (token < p.tokens && row < p.rows)
        p.out[token * p.out_stride + head * p.out_head + row] = __float2bfloat16_rn(sums[t][i]);
    }
  }
}

}  // namespace

void head_product_tiles(Launch& launch, const HeadLinearArgs& args) {
  const Weight& weight = args.weight;
  constexpr int64_t kMostGridY = 65535;
  for (int64_t first = 0; first < args.x.rows; first += kMostGridY * kHeadTokens) {
    const auto tokens = static_cast<int32_t>(min(args.x.rows - first, kMostGridY * kHeadTokens));
    const int64_t x_bytes = args.x.dtype == DType::f32 ? 4 : 2;
    const HeadProduct p{.weight = weight.data,
                        .matrix_bytes = matrix_stride_bytes(weight.dtype, weight.rows, weight.cols),
                        .rows = static_cast<int32_t>(weight.rows),
                        .cols = static_cast<int32_t>(weight.cols),
                        .x = static_cast<const char*>(args.x.data) + first * args.x.stride * x_bytes,
                        .x_is_f32 = args.x.dtype == DType::f32,
                        .x_aligned = args.x.stride % 4 == 0 && args.x.cols / weight.count % 4 == 0 &&
                                     weight.cols % 4 == 0 &&
                                     reinterpret_cast<uintptr_t>(args.x.data) % 8 == 0,
                        .x_stride = args.x.stride,
                        .x_head = args.x.cols / weight.count,
                        .out = static_cast<__nv_bfloat16*>(args.out.data) + first * args.out.stride,
                        .out_stride = args.out.stride,
                        .out_head = args.out.cols / weight.count,
                        .tokens = tokens};
    const dim3 grid(static_cast<unsigned>((weight.rows + kHeadRows - 1) / kHeadRows),
                    static_cast<unsigned>((tokens + kHeadTokens - 1) / kHeadTokens),
                    static_cast<unsigned>(weight.count));
    for_type(DeviceTypes{}, "head_linear", weight.dtype,
             [&](auto type) { launch("head_product", head_product_kernel<type>, grid, kHeadThreads, 0, p); });
  }
}

}  // namespace minfer::cuda
