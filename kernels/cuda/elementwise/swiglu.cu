#include "kernels/cuda/elementwise/columns.cuh"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/dtype.h"

// SwiGLU and similar functions after products that do not compute them themselves (kernels/activation.h has the formulas).
//
// gate_up [tokens, 2 F], out [tokens, F], bf16 or f32 each, biases [F] f32. Blocks: see columns.cuh. Bytes: each tensor once.
namespace minfer::cuda {
namespace {

__device__ __forceinline__ void add_bias_columns(const float* bias, int64_t col, int64_t cols,
                                                 float (&values)[kColumns]) {
  if (bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    if (col + i < cols) values[i] += bias[col + i];
}

/// The threads that a multiprocessor holds.
#if defined(__CUDA_ARCH__) && ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
inline constexpr int kMostThreads = 1536;
#else
inline constexpr int kMostThreads = 2048;
#endif
/// Blocks that fill a multiprocessor, if rows are loaded by vectors: without the bound the activations' branches take more registers.
template <bool kAligned>
inline constexpr int kLeastBlocks = kAligned ? kMostThreads / kColumnsThreads : 1;

template <class In, class Out, bool kAligned>
__global__ void __launch_bounds__(kColumnsThreads, kLeastBlocks<kAligned>)
    swiglu_kernel(const In* gate_up, int64_t stride, int64_t cols, Out* out, int64_t out_stride,
                  Gating gating, Stamps stamps) {
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
  add_bias_columns(gating.gate_bias, col, cols, gate);
  add_bias_columns(gating.up_bias, col, cols, up);
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    up[i] = Gate<false>(gating.activation)(gate[i], up[i]);
  store_columns<Out, kAligned>(out + blockIdx.x * out_stride + col, cols - col, up);
}

template <class In, class Out>
void launch_swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out, const Gating& gating) {
  const auto run = [&](auto kernel) {
    launch("swiglu", kernel, columns_grid(out), kColumnsThreads, 0, static_cast<const In*>(gate_up.data),
           gate_up.stride, out.cols, static_cast<Out*>(out.data), out.stride, gating);
  };
  const bool all = columns_aligned(gate_up) && columns_aligned(out) && out.cols % kColumns == 0;
  all ? run(swiglu_kernel<In, Out, true>) : run(swiglu_kernel<In, Out, false>);
}

}  // namespace

void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out, const Gating& gating) {
  require_equal("swiglu: columns of the input", 2 * out.cols, gate_up.cols);
  using bf16 = __nv_bfloat16;
  if (gate_up.dtype == DType::bf16 && out.dtype == DType::bf16)
    return launch_swiglu<bf16, bf16>(launch, gate_up, out, gating);
  if (gate_up.dtype == DType::f32 && out.dtype == DType::bf16)
    return launch_swiglu<float, bf16>(launch, gate_up, out, gating);
  if (gate_up.dtype == DType::f32 && out.dtype == DType::f32)
    return launch_swiglu<float, float>(launch, gate_up, out, gating);
  unsupported("swiglu", "bf16 to bf16, or f32 to bf16 or f32", name(gate_up.dtype));
}

}  // namespace minfer::cuda
