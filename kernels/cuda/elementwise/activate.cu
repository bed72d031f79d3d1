#include "kernels/cuda/elementwise/columns.cuh"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/dtype.h"

// A function of each element (kernels/activation.h has the formulas), for feed-forward layers without a gate and for capped logits.
//
// x, out [rows, cols], both f32 or both bf16; out may be x. Blocks: see columns.cuh. Bytes: each tensor once.
namespace minfer::cuda {
namespace {

__device__ __forceinline__ float activated(const Activation& activation, float x) {
  switch (activation.kind) {
    case Activation::Kind::gelu_tanh:
      return x / (1.0f + expf(-x * fmaf(kGeluTanhCubic, x * x, kGeluTanhLinear)));
    case Activation::Kind::gelu:
      return 0.5f * x * (1.0f + erff(0.70710678f * x));
    case Activation::Kind::xielu: {
      if (x > 0.0f) return fmaf(activation.positive * x, x, activation.linear * x);
      const float bent = expm1f(x < activation.eps ? x : activation.eps) - x;
      return fmaf(activation.negative, bent, activation.linear * x);
    }
    case Activation::Kind::relu_squared:
      return x < 0.0f ? 0.0f : x * x;
    case Activation::Kind::soft_cap:
      return x == -INFINITY ? x : activation.cap * tanhf(x / activation.cap);
  }
  return x;
}

template <class Element, bool kAligned>
__global__ void activate_kernel(const Element* x, int64_t stride, int64_t cols, Element* out,
                                int64_t out_stride, Activation activation, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  allow_next_kernel();
  begin_kernel(stamps);
  const int64_t col = first_column();
  if (col >= cols) return;
  float values[kColumns];
  load_columns<Element, kAligned>(x + blockIdx.x * stride + col, cols - col, values);
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    values[i] = activated(activation, values[i]);
  store_columns<Element, kAligned>(out + blockIdx.x * out_stride + col, cols - col, values);
}

template <class Element>
void launch_activate(Launch& launch, const ActivateArgs& args) {
  const auto run = [&](auto kernel) {
    launch("activate", kernel, columns_grid(args.out), kColumnsThreads, 0,
           static_cast<const Element*>(args.x.data), args.x.stride, args.x.cols,
           static_cast<Element*>(args.out.data), args.out.stride, args.activation);
  };
  columns_aligned(args.x) && columns_aligned(args.out) ? run(activate_kernel<Element, true>)
                                                       : run(activate_kernel<Element, false>);
}

}  // namespace

void activate(Launch& launch, const ActivateArgs& args) {
  require_equal("activate: columns of out", args.x.cols, args.out.cols);
  require_equal("activate: rows of out", args.x.rows, args.out.rows);
  if (args.x.rows == 0) return;
  if (args.x.dtype != args.out.dtype) unsupported("activate", "x and out of one type", name(args.out.dtype));
  if (args.x.dtype == DType::f32) return launch_activate<float>(launch, args);
  if (args.x.dtype == DType::bf16) return launch_activate<__nv_bfloat16>(launch, args);
  unsupported("activate", "x of f32 or bf16", name(args.x.dtype));
}

}  // namespace minfer::cuda
