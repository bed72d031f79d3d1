#include "kernels/cuda/dequantise.h"
#include "kernels/cuda/weight_elements.cuh"
#include "kernels/dtype.h"

// Rows of a weight in any device layout -> bf16 or f32 [num_rows, cols], row-major.
//
// Blocks (x: 256 columns, y: 16 rows): one tile each; 256 threads of four columns, so that a warp writes 256
// consecutive bytes of a row, or 512. Reads the bytes of the quants, writes two or four an element.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsAtOnce = kThreads * 4 / kTileCols;

__device__ void store_four(__nv_bfloat16* to, const float4& v) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}
__device__ void store_four(float* to, const float4& v) {
  *reinterpret_cast<float4*>(to) = v;
}

template <DType type, class Out>
__global__ void dequantise_kernel(const void* matrix, int64_t cols, int64_t first_row, int64_t num_rows,
                                  Out* out, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const int64_t col = blockIdx.x * kTileCols + threadIdx.x * 4 % kTileCols;
  if (col >= cols) return;
  const int64_t block_row = static_cast<int64_t>(blockIdx.y) * kPanelRows + threadIdx.x * 4 / kTileCols;
#pragma unroll
  for (int i = 0; i < kPanelRows; i += kRowsAtOnce) {
    const int64_t row = block_row + i;
    if (row >= num_rows) break;
    store_four(out + row * cols + col, weight_values<type>(matrix, cols, first_row + row, col));
  }
}

}  // namespace

void dequantise_rows(Launch& launch, const Weight& matrix, int64_t first_row, int64_t num_rows,
                     DType out_type, void* out) {
  require_equal("dequantise_rows: columns modulo 4", 0, matrix.cols % 4);
  const dim3 grid(static_cast<unsigned>(tiles_of(matrix.cols)), static_cast<unsigned>(panels_of(num_rows)));
  const bool known = for_device_type(matrix.dtype, [&](auto type) {
    if (out_type == DType::f32) {
      launch("dequantise_rows", dequantise_kernel<type, float>, grid, kThreads, 0, matrix.data, matrix.cols,
             first_row, num_rows, static_cast<float*>(out));
    } else {
      launch("dequantise_rows", dequantise_kernel<type, __nv_bfloat16>, grid, kThreads, 0, matrix.data,
             matrix.cols, first_row, num_rows, static_cast<__nv_bfloat16*>(out));
    }
  });
  if (!known) unsupported("dequantise_rows", "a device type", name(matrix.dtype));
}

}  // namespace minfer::cuda
