// The same as head_product.cu in f32 arithmetic: x and out f32, weights of any type. A warp takes a row of W and 8 tokens, a block 8 rows:
// grid (rows, tokens, heads). Lanes take four columns of 128 at a time.
#include <string>

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/product/head_product.h"
#include "kernels/cuda/weights/weight_elements.cuh"
#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {
namespace {

constexpr int kHeadF32Warps = 8;
constexpr int kHeadF32Tokens = 8;

struct HeadProductF32 {
  const void* weight;
  int64_t matrix_bytes;
  int32_t rows, cols;
  const float* x;
  int64_t x_stride, x_head;
  float* out;
  int64_t out_stride, out_head;
  int32_t tokens;
};

template <DType type>
__global__ void __launch_bounds__(kHeadF32Warps* kWarpSize)
    head_product_f32_kernel(HeadProductF32 p, Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const auto lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t row =
      static_cast<int32_t>(blockIdx.x) * kHeadF32Warps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
  const int32_t first_token = static_cast<int32_t>(blockIdx.y) * kHeadF32Tokens;
  const auto head = static_cast<int32_t>(blockIdx.z);
  if (row >= p.rows) return;
  const char* matrix = static_cast<const char*>(p.weight) + head * p.matrix_bytes;
  const float* x = p.x + first_token * p.x_stride + head * p.x_head;
  const int32_t count = min(p.tokens - first_token, kHeadF32Tokens);
  float sums[kHeadF32Tokens] = {};
  for (int32_t k = 4 * lane; k < p.cols; k += 4 * kWarpSize) {
    const float4 w = weight_values<type>(matrix, p.cols, row, k);
#pragma unroll
    for (int t = 0; t < kHeadF32Tokens; ++t) {
      if (t >= count) break;
      const float* at = x + t * p.x_stride + k;
      sums[t] += w.x * at[0];
      if (k + 1 < p.cols) sums[t] += w.y * at[1];
      if (k + 2 < p.cols) sums[t] += w.z * at[2];
      if (k + 3 < p.cols) sums[t] += w.w * at[3];
    }
  }
#pragma unroll
  for (int t = 0; t < kHeadF32Tokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0 && t < count) p.out[(first_token + t) * p.out_stride + head * p.out_head + row] = sum;
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

void head_product_f32(Launch& launch, const HeadLinearArgs& args) {
  const Weight& weight = args.weight;
  constexpr int64_t kMostGridY = 65535;
  for (int64_t first = 0; first < args.x.rows; first += kMostGridY * kHeadF32Tokens) {
    const auto tokens = static_cast<int32_t>(min(args.x.rows - first, kMostGridY * kHeadF32Tokens));
    const HeadProductF32 p{.weight = weight.data,
                           .matrix_bytes = matrix_stride_bytes(weight.dtype, weight.rows, weight.cols),
                           .rows = static_cast<int32_t>(weight.rows),
                           .cols = static_cast<int32_t>(weight.cols),
                           .x = args.x.f32() + first * args.x.stride,
                           .x_stride = args.x.stride,
                           .x_head = args.x.cols / weight.count,
                           .out = args.out.f32() + first * args.out.stride,
                           .out_stride = args.out.stride,
                           .out_head = args.out.cols / weight.count,
                           .tokens = tokens};
    const dim3 grid(static_cast<unsigned>((weight.rows + kHeadF32Warps - 1) / kHeadF32Warps),
                    static_cast<unsigned>((tokens + kHeadF32Tokens - 1) / kHeadF32Tokens),
                    static_cast<unsigned>(weight.count));
    for_type(DeviceTypes{}, "head_linear", weight.dtype, [&](auto type) {
      launch("head_product", head_product_f32_kernel<type>, grid, kHeadF32Warps * kWarpSize, 0, p);
    });
  }
}

void head_product(Launch& launch, const HeadLinearArgs& args) {
  check(args);
  if (args.x.rows == 0) return;
  args.out.dtype == DType::f32 ? head_product_f32(launch, args) : head_product_bf16(launch, args);
}

}  // namespace minfer::cuda
