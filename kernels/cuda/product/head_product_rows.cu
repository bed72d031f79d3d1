// The function of head_product.cu in f32 arithmetic: x and out f32 or bf16, weights of any type. A warp takes a
// row of W and 8 tokens, a block 8 rows: grid (rows, tokens, heads). Lanes take four columns each, 128 together,
// at a time; their part of the first kAtOnce such columns is loaded before the kernels in front have ended.
//
// Few tokens give head_product.cu too few tiles: for one token, DeepSeek-V2-Lite's values would be 32 blocks of
// four chunks that wait for memory, 35 us on an H200.
#include <string>

#include "kernels/cuda/product/head_product.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/vector_io.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/weight_elements.cuh"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

constexpr int kHeadRowsWarps = 8;
constexpr int kHeadRowsTokens = 8;

struct HeadRows {
  const void* weight;
  int64_t matrix_bytes;
  int32_t rows, cols;
  const void* x;
  bool x_is_f32;
  int64_t x_stride, x_head;
  void* out;
  bool out_is_f32;
  int64_t out_stride, out_head;
  int32_t tokens;
};

template <class X>
__device__ __forceinline__ float dot_four(const float4& w, const X* x, int32_t cols) {
  float sum = w.x * to_f32(x[0]);
  if (1 < cols) sum += w.y * to_f32(x[1]);
  if (2 < cols) sum += w.z * to_f32(x[2]);
  if (3 < cols) sum += w.w * to_f32(x[3]);
  return sum;
}

template <DType type>
__global__ void __launch_bounds__(kHeadRowsWarps* kWarpSize) head_rows_kernel(HeadRows p, Stamp stamp) {
  constexpr int32_t kStep = 4 * kWarpSize, kAtOnce = 4;
  allow_next_kernel();
  const auto lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t row =
      static_cast<int32_t>(blockIdx.x) * kHeadRowsWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
  const int32_t first_token = static_cast<int32_t>(blockIdx.y) * kHeadRowsTokens;
  const auto head = static_cast<int32_t>(blockIdx.z);
  const char* matrix = static_cast<const char*>(p.weight) + head * p.matrix_bytes;
  const int32_t count = min(p.tokens - first_token, kHeadRowsTokens);
  const int64_t x_at = first_token * p.x_stride + head * p.x_head;
  float4 weights[kAtOnce];
  const auto load = [&](int32_t first) {
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      const int32_t k = first + i * kStep + 4 * lane;
      weights[i] = row < p.rows && k < p.cols ? weight_values<type>(matrix, p.cols, row, k) : float4{};
    }
  };
  load(0);
  begin_kernel(stamp);
  if (row >= p.rows) return;
  float sums[kHeadRowsTokens] = {};
  for (int32_t first = 0; first < p.cols; first += kAtOnce * kStep) {
    if (first > 0) load(first);
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      const int32_t k = first + i * kStep + 4 * lane;
      if (k >= p.cols) break;
#pragma unroll
      for (int t = 0; t < kHeadRowsTokens; ++t) {
        if (t >= count) break;
        const int64_t at = x_at + t * p.x_stride + k;
        sums[t] += p.x_is_f32 ? dot_four(weights[i], static_cast<const float*>(p.x) + at, p.cols - k)
                              : dot_four(weights[i], static_cast<const __nv_bfloat16*>(p.x) + at, p.cols - k);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kHeadRowsTokens; ++t) {
    if (t >= count) break;
    const float sum = warp_sum(sums[t]);
    if (lane != 0) continue;
    const int64_t at = (first_token + t) * p.out_stride + head * p.out_head + row;
    if (p.out_is_f32) {
      static_cast<float*>(p.out)[at] = sum;
    } else {
      static_cast<__nv_bfloat16*>(p.out)[at] = __float2bfloat16_rn(sum);
    }
  }
}

void check(const HeadLinearArgs& args) {
  const Weight& weight = args.weight;
  require_equal("head_linear: rows of out", args.x.rows, args.out.rows);
  const auto fits = [&](int64_t cols, int64_t size) {
    return weight.count > 0 && cols % weight.count == 0 && cols / weight.count >= size;
  };
  if (!fits(args.x.cols, weight.cols) || !fits(args.out.cols, weight.rows)) {
    unsupported("head_linear", "columns of whole heads, of x no fewer than K and of out than N",
                std::to_string(args.x.cols) + " and " + std::to_string(args.out.cols) + " for " +
                    std::to_string(weight.count) + " x [" + std::to_string(weight.rows) + ", " +
                    std::to_string(weight.cols) + "]");
  }
  const bool known =
      args.out.dtype == DType::f32
          ? args.x.dtype == DType::f32
          : args.out.dtype == DType::bf16 && (args.x.dtype == DType::bf16 || args.x.dtype == DType::f32);
  if (!known) {
    unsupported("head_linear", "x and out of f32, or out of bf16 and x of either",
                std::string(name(args.x.dtype)) + " and " + std::string(name(args.out.dtype)));
  }
}

}  // namespace

void head_product_rows(Launch& launch, const HeadLinearArgs& args) {
  const Weight& weight = args.weight;
  constexpr int64_t kMostGridY = 65535;
  for (int64_t first = 0; first < args.x.rows; first += kMostGridY * kHeadRowsTokens) {
    const auto tokens = static_cast<int32_t>(min(args.x.rows - first, kMostGridY * kHeadRowsTokens));
    const auto size = [](DType type) { return int64_t{type == DType::f32 ? 4 : 2}; };
    const HeadRows p{
        .weight = weight.data,
        .matrix_bytes = matrix_stride_bytes(weight.dtype, weight.rows, weight.cols),
        .rows = static_cast<int32_t>(weight.rows),
        .cols = static_cast<int32_t>(weight.cols),
        .x = static_cast<const char*>(args.x.data) + first * args.x.stride * size(args.x.dtype),
        .x_is_f32 = args.x.dtype == DType::f32,
        .x_stride = args.x.stride,
        .x_head = args.x.cols / weight.count,
        .out = static_cast<char*>(args.out.data) + first * args.out.stride * size(args.out.dtype),
        .out_is_f32 = args.out.dtype == DType::f32,
        .out_stride = args.out.stride,
        .out_head = args.out.cols / weight.count,
        .tokens = tokens};
    const dim3 grid(static_cast<unsigned>((weight.rows + kHeadRowsWarps - 1) / kHeadRowsWarps),
                    static_cast<unsigned>((tokens + kHeadRowsTokens - 1) / kHeadRowsTokens),
                    static_cast<unsigned>(weight.count));
    for_type(DeviceTypes{}, "head_linear", weight.dtype, [&](auto type) {
      launch("head_product", head_rows_kernel<type>, grid, kHeadRowsWarps * kWarpSize, 0, p);
    });
  }
}

void head_product(Launch& launch, const HeadLinearArgs& args) {
  constexpr int64_t kFewTokens = kHeadRowsTokens;
  check(args);
  if (args.x.rows == 0) return;
  args.out.dtype == DType::f32 || args.x.rows <= kFewTokens ? head_product_rows(launch, args)
                                                            : head_product_tiles(launch, args);
}

}  // namespace minfer::cuda
