#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/elementwise/columns.cuh"
#include "kernels/cuda/elementwise/swiglu.h"
#include "kernels/dtype.h"

// SwiGLU behind products that do not do it themselves (activation.cuh has the formula).
//
// gate_up [tokens, 2 F], out [tokens, F], bf16 or f32 each. Blocks: see columns.cuh. Bytes: each tensor once.
namespace minfer::cuda {
namespace {

template <class In, class Out, bool kAligned>
__global__ void swiglu_kernel(const In* gate_up, int64_t stride, int64_t cols, Out* out, int64_t out_stride,
                              Stamps stamps) {
  const EndStamp end_stamp(stamps);
  allow_next_kernel();
  begin_kernel(stamps);
  const int64_t col = first_column();
  if (col >= cols) return;
  const In* row = gate_up + blockIdx.x * stride;
  float gate[kColumns];
  float up[kColumns];
  load_columns<In, kAligned>(row + col, cols - col, gate);
  load_columns<In, kAligned>(row + cols + col, cols - col, up);
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    up[i] = SwiGlu<false>{}(gate[i], up[i]);
  store_columns<Out, kAligned>(out + blockIdx.x * out_stride + col, cols - col, up);
}

template <class In, class Out>
void launch_swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out) {
  const auto run = [&](auto kernel) {
    launch("swiglu", kernel, columns_grid(out), kColumnsThreads, 0, static_cast<const In*>(gate_up.data),
           gate_up.stride, out.cols, static_cast<Out*>(out.data), out.stride);
  };
  const bool all = columns_aligned(gate_up) && columns_aligned(out) && out.cols % kColumns == 0;
  all ? run(swiglu_kernel<In, Out, true>) : run(swiglu_kernel<In, Out, false>);
}

}  // namespace

void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out) {
  require_equal("swiglu: columns of the input", 2 * out.cols, gate_up.cols);
  using bf16 = __nv_bfloat16;
  if (gate_up.dtype == DType::bf16 && out.dtype == DType::bf16)
    return launch_swiglu<bf16, bf16>(launch, gate_up, out);
  if (gate_up.dtype == DType::f32 && out.dtype == DType::bf16)
    return launch_swiglu<float, bf16>(launch, gate_up, out);
  if (gate_up.dtype == DType::f32 && out.dtype == DType::f32)
    return launch_swiglu<float, float>(launch, gate_up, out);
  unsupported("swiglu", "bf16 to bf16, or f32 to bf16 or f32", name(gate_up.dtype));
}

}  // namespace minfer::cuda
