#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/elementwise/swiglu.h"
#include "kernels/dtype.h"

// What products through a library leave to do.
//
// swiglu: out[t, i] = silu(gu[t, i]) * gu[t, F + i] with silu(z) = z / (1 + e^-z) in f32 (Shazeer 2020, "GLU
// variants improve transformer"); gu [tokens, 2 F], out [tokens, F], bf16 or f32 each. add_bias: out[t, n] +=
// bias[n], bias f32.
//
// Blocks (x: token, y: 2,048 columns), 256 threads of eight columns: 16-byte accesses of bf16 where all rows
// are aligned, else an element at a time. Bytes: each tensor once.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColsPerThread = 8;

template <class T, bool kAligned>
__device__ void load(const T* from, int64_t count, float (&values)[kColsPerThread]) {
  struct alignas(kAligned ? 16 : sizeof(T)) Elements {
    T values[kColsPerThread];
  };
  if (kAligned && count >= kColsPerThread) {
    const Elements elements = *reinterpret_cast<const Elements*>(from);
#pragma unroll
    for (int i = 0; i < kColsPerThread; ++i)
      values[i] = to_f32(elements.values[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i)
    values[i] = i < count ? to_f32(from[i]) : 0.0f;
}

template <class T, bool kAligned>
__device__ void store(T* to, int64_t count, const float (&values)[kColsPerThread]) {
  struct alignas(kAligned ? 16 : sizeof(T)) Elements {
    T values[kColsPerThread];
  };
  Elements elements;
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i)
    elements.values[i] = from_f32<T>(values[i]);
  if (kAligned && count >= kColsPerThread) {
    *reinterpret_cast<Elements*>(to) = elements;
    return;
  }
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    if (i < count) to[i] = elements.values[i];
  }
}

template <class In, class Out, bool kAligned>
__global__ void swiglu_kernel(const In* gate_up, int64_t stride, int64_t cols, Out* out, int64_t out_stride,
                              Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColsPerThread;
  if (col >= cols) return;
  const In* row = gate_up + blockIdx.x * stride;
  float gate[kColsPerThread];
  float up[kColsPerThread];
  load<In, kAligned>(row + col, cols - col, gate);
  load<In, kAligned>(row + cols + col, cols - col, up);
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i)
    up[i] *= gate[i] / (1.0f + __expf(-gate[i]));
  store<Out, kAligned>(out + blockIdx.x * out_stride + col, cols - col, up);
}

template <class Out, bool kAligned>
__global__ void add_bias_kernel(const float* bias, int64_t cols, Out* out, int64_t stride, Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColsPerThread;
  if (col >= cols) return;
  Out* at = out + blockIdx.x * stride + col;
  float values[kColsPerThread];
  load<Out, kAligned>(at, cols - col, values);
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i)
    values[i] += col + i < cols ? bias[col + i] : 0.0f;
  store<Out, kAligned>(at, cols - col, values);
}

__global__ void stamp_kernel(Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
}

dim3 grid_of(const Tensor& out) {
  constexpr int64_t kColsPerBlock = kThreads * kColsPerThread;
  return {static_cast<unsigned>(out.rows),
          static_cast<unsigned>((out.cols + kColsPerBlock - 1) / kColsPerBlock)};
}

/// Whether vectors of 16 bytes of bf16 (32 of f32) are aligned in all rows.
bool aligned(const Tensor& tensor) {
  return tensor.stride % kColsPerThread == 0 && reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
}

template <class In, class Out>
void launch_swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out) {
  const auto run = [&](auto kernel) {
    launch("swiglu", kernel, grid_of(out), kThreads, 0, static_cast<const In*>(gate_up.data), gate_up.stride,
           out.cols, static_cast<Out*>(out.data), out.stride);
  };
  const bool all = aligned(gate_up) && aligned(out) && out.cols % kColsPerThread == 0;
  all ? run(swiglu_kernel<In, Out, true>) : run(swiglu_kernel<In, Out, false>);
}

template <class Out>
void launch_add_bias(Launch& launch, const float* bias, const Tensor& out) {
  const auto run = [&](auto kernel) {
    launch("add_bias", kernel, grid_of(out), kThreads, 0, bias, out.cols, static_cast<Out*>(out.data),
           out.stride);
  };
  aligned(out) ? run(add_bias_kernel<Out, true>) : run(add_bias_kernel<Out, false>);
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

void add_bias(Launch& launch, const float* bias, const Tensor& out) {
  if (out.dtype == DType::bf16) return launch_add_bias<__nv_bfloat16>(launch, bias, out);
  if (out.dtype == DType::f32) return launch_add_bias<float>(launch, bias, out);
  unsupported("add_bias", "an output of bf16 or f32", name(out.dtype));
}

void stamp_only(Launch& launch) {
  launch("stamp", stamp_kernel, 1, 1, 0);
}

}  // namespace minfer::cuda
