#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/dtype.h"

// bf16 activations as f16, for products with f16 weights.
//
// x [tokens, cols] bf16, rows `stride` apart; out [tokens, cols] f16 without gaps. Blocks (x: token,
// y: 2,048 columns), 256 threads of eight columns: one 16-byte load and store each.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColsPerThread = 8;
constexpr float kLargestHalf = 65504.0f;

__global__ void convert_kernel(const __nv_bfloat16* x, int64_t stride, int64_t cols, __half* out,
                               Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColsPerThread;
  if (col >= cols) return;
  const uint4 words = *reinterpret_cast<const uint4*>(x + blockIdx.x * stride + col);
  const auto* values = reinterpret_cast<const __nv_bfloat16*>(&words);
  struct alignas(16) Halves {
    __half values[kColsPerThread];
  } halves;
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    const float value = to_f32(values[i]);
    halves.values[i] = from_f32<__half>(fminf(fmaxf(value, -kLargestHalf), kLargestHalf));
  }
  *reinterpret_cast<Halves*>(out + blockIdx.x * cols + col) = halves;
}

}  // namespace

void convert_to_f16(Launch& launch, const Tensor& x, void* out) {
  if (x.dtype != DType::bf16) unsupported("convert_to_f16", "x of bf16", name(x.dtype));
  require_equal("convert_to_f16: columns modulo 8", 0, x.cols % kColsPerThread);
  require_equal("convert_to_f16: distance of rows modulo 8", 0, x.stride % kColsPerThread);
  constexpr int64_t kColsPerBlock = kThreads * kColsPerThread;
  const dim3 grid(static_cast<unsigned>(x.rows),
                  static_cast<unsigned>((x.cols + kColsPerBlock - 1) / kColsPerBlock));
  launch("convert_to_f16", convert_kernel, grid, kThreads, 0, static_cast<const __nv_bfloat16*>(x.data),
         x.stride, x.cols, static_cast<__half*>(out));
}

}  // namespace minfer::cuda
