#include "kernels/cuda/moe/routes/moe_routes.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/weight_elements.cuh"

/// Products of experts (see MoeProduct) in f32 arithmetic: x f32 with weights of any type, x bf16 with weights
/// in f32, f16 or bf16, or in a rare type, which a mixture of one expert may have.
///
/// A persistent block takes a batch of up to 8 routes and 8 rows, a warp takes one row, and lanes take four
/// columns each, 128 together, at a time. Weights are read once for each batch, x from the caches.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kBlocksPerSm = 4;

template <class X>
__device__ __forceinline__ float4 x_values(const X* row, int32_t cols, int32_t k) {
  const auto at = [&](int i) { return k + i < cols ? to_f32(row[k + i]) : 0.0f; };
  return {at(0), at(1), at(2), at(3)};
}

__device__ __forceinline__ float dot(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

template <DType type, class X, int kMatrices>
__global__ void __launch_bounds__(kWarps* kWarpSize) moe_row_kernel(MoeProduct p, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarpSize);
  const int32_t row_groups = (p.rows + kWarps - 1) / kWarps;
  const int32_t units = num_batches(p).all * row_groups;
  for (auto unit = static_cast<int32_t>(blockIdx.x); unit < units; unit += static_cast<int32_t>(gridDim.x)) {
    const ExpertBatch batch = batch_at(p, unit / row_groups);
    const int32_t row = unit % row_groups * kWarps + static_cast<int32_t>(threadIdx.x / kWarpSize);
    if (row >= p.rows) continue;
    const char* matrices[2] = {static_cast<const char*>(p.weight) + batch.expert * p.matrix_bytes,
                               static_cast<const char*>(p.up) + batch.expert * p.matrix_bytes};
    const X* x[kRowBatchRoutes];
#pragma unroll
    for (int i = 0; i < kRowBatchRoutes; ++i) {
      const int32_t route = route_at(p, batch, min(i, batch.count - 1));
      x[i] = static_cast<const X*>(p.x) + route / p.routes_per_x * p.x_stride;
    }
    float sums[kMatrices][kRowBatchRoutes] = {};
    for (int32_t k = 4 * lane; k < p.cols; k += 4 * kWarpSize) {
      float4 weights[kMatrices];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m)
        weights[m] = weight_values<type>(matrices[m], p.cols, row, k);
#pragma unroll
      for (int i = 0; i < kRowBatchRoutes; ++i) {
        if (i >= batch.count) break;
        const float4 values = x_values(x[i], p.cols, k);
#pragma unroll
        for (int m = 0; m < kMatrices; ++m)
          sums[m][i] = dot(weights[m], values, sums[m][i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowBatchRoutes; ++i) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        sums[m][i] = warp_sum(sums[m][i]);
      }
      if (lane != 0 || i >= batch.count) continue;
      const int32_t route = route_at(p, batch, i);
      const float value = kMatrices == 2
                              ? gated<true>(p, route, batch.expert, row, sums[0][i], sums[kMatrices - 1][i])
                              : sums[0][i];
      store_route(p, route, row, value);
    }
  }
}

template <DType type, class X>
void launch_rows(Launch& launch, const MoeProduct& p) {
  const int32_t batches = p.grouped() ? most_batches(p.num_routes, p.experts, kRowBatchRoutes) : p.num_routes;
  const int64_t units = int64_t{batches} * ((p.rows + kWarps - 1) / kWarps);
  const auto blocks = static_cast<unsigned>(min(units, int64_t{launch.num_sms() * kBlocksPerSm}));
  launch("moe_row_product", p.up != nullptr ? moe_row_kernel<type, X, 2> : moe_row_kernel<type, X, 1>, blocks,
         kWarps * kWarpSize, 0, p);
}

}  // namespace

void moe_row_product(Launch& launch, const MoeProduct& p) {
  if (p.x_is_f32) {
    return for_type(DeviceTypes{}, "products of experts", p.dtype,
                    [&](auto type) { launch_rows<type, float>(launch, p); });
  }
  if (is_tiled(p.dtype) && !is_rare(p.dtype))
    unsupported("products of experts", "columns in multiples of 8, rows of x aligned to 16 bytes",
                name(p.dtype));
  for_type(joined(PlainTypes{}, RareTypes{}), "products of experts", p.dtype,
           [&](auto type) { launch_rows<type, __nv_bfloat16>(launch, p); });
}

}  // namespace minfer::cuda
