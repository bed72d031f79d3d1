#include "kernels/cuda/elementwise/columns.cuh"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/dtype.h"

// Biases after products of a library. Blocks: see columns.cuh. Bytes: `out` twice.
namespace minfer::cuda {
namespace {

template <class Out, bool kAligned>
__global__ void add_bias_kernel(const float* bias, int64_t cols, Out* out, int64_t stride, Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t col = first_column();
  if (col >= cols) return;
  Out* at = out + blockIdx.x * stride + col;
  float values[kColumns];
  load_columns<Out, kAligned>(at, cols - col, values);
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    values[i] += col + i < cols ? bias[col + i] : 0.0f;
  store_columns<Out, kAligned>(at, cols - col, values);
}

template <class Out>
void launch_add_bias(Launch& launch, const float* bias, const Tensor& out) {
  const auto run = [&](auto kernel) {
    launch("add_bias", kernel, columns_grid(out), kColumnsThreads, 0, bias, out.cols,
           static_cast<Out*>(out.data), out.stride);
  };
  columns_aligned(out) ? run(add_bias_kernel<Out, true>) : run(add_bias_kernel<Out, false>);
}

}  // namespace

void add_bias(Launch& launch, const float* bias, const Tensor& out) {
  if (out.dtype == DType::bf16) return launch_add_bias<__nv_bfloat16>(launch, bias, out);
  if (out.dtype == DType::f32) return launch_add_bias<float>(launch, bias, out);
  unsupported("add_bias", "an output of bf16 or f32", name(out.dtype));
}

}  // namespace minfer::cuda
