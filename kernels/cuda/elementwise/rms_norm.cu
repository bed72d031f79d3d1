#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/vector8.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// out[t, i] = x[t, i] / sqrt(mean over i of x[t, i]^2 + eps) * weight[i]   (Zhang & Sennrich 2019).
///
///   x       [rows, cols] f32 or bf16, rows `stride` elements apart
///   weight  [cols] f32
///   out     [rows, cols] f32 or bf16, which may be x, or fp8 (fp8_activations.h)
///
/// One block a row. A thread takes vectors of 8 elements, `blockDim.x` vectors apart, and keeps the first kKept in registers
/// between the two passes over the row, so that a row is read once. With few rows, when latency counts, it keeps one vector
/// and a block has up to 1,024 threads; with many rows it keeps four, so that a multiprocessor has more rows in flight. In
/// longer rows the second pass reads the rest from the caches. The thread that reads an element writes it, so the op may run
/// in place. Moves rows * cols * (sizeof x + sizeof out) bytes; the weight is read before the kernel in front has ended.
///
/// Rows that do not allow 16-byte accesses (columns or strides that are not a multiple of 8, odd addresses) are
/// processed element by element.
namespace minfer::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kManyRows = 512;
constexpr int kKeptOfMany = 4;

template <class In, class Out>
struct Rows {
  const In* x;
  int64_t x_stride;
  const float* weight;
  Out* out;
  int64_t out_stride;
  int32_t cols;
  float eps;
  Fp8Activations fp8;  ///< the output, if it is fp8
};

/// One element, if vectors are not aligned.
struct Vector1 {
  float at[1];
};

template <int kSize, class T>
__device__ __forceinline__ auto load(const T* from) {
  if constexpr (kSize == 8) {
    return load8(from);
  } else {
    return Vector1{{to_f32(*from)}};
  }
}

template <class T>
__device__ __forceinline__ void store(T* to, const Vector8& values) {
  store8(to, values);
}
template <class T>
__device__ __forceinline__ void store(T* to, const Vector1& value) {
  *to = from_f32<T>(value.at[0]);
}

template <class Vector>
__device__ __forceinline__ float sum_of_squares(const Vector& values) {
  float sum = 0.0f;
#pragma unroll
  for (const float value : values.at)
    sum = fmaf(value, value, sum);
  return sum;
}

template <class Vector, int kSize = sizeof(Vector) / sizeof(float)>
__device__ __forceinline__ Vector scaled(const Vector& values, float scale, const Vector& weight) {
  Vector result;
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    result.at[i] = values.at[i] * scale * weight.at[i];
  return result;
}

/// The sum over the block, in every thread; called once a kernel. The order of additions is the same as in a
/// block with kKept times as many threads and one value each: a row has the same bits for any number of rows.
template <int kKept>
__device__ float block_sum(const float (&values)[kKept]) {
  __shared__ float warp_sums[kMaxThreads / kWarpSize];
  const int lane = static_cast<int>(threadIdx.x % kWarpSize),
            warp = static_cast<int>(threadIdx.x / kWarpSize);
  const int warps = static_cast<int>(blockDim.x / kWarpSize);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const float sum = warp_sum(values[k]);
    if (lane == 0) warp_sums[k * warps + warp] = sum;
  }
  __syncthreads();
  return warp_sum(lane < kKept * warps ? warp_sums[lane] : 0.0f);
}

template <class In, class Out, int kSize, int kKept>
__global__ void __launch_bounds__(kMaxThreads / kKept) rms_norm_kernel(Rows<In, Out> rows, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  using Vector = decltype(load<kSize>(rows.weight));
  const int32_t first = static_cast<int32_t>(threadIdx.x) * kSize;
  const int32_t step = static_cast<int32_t>(blockDim.x) * kSize;
  Vector weight[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (first + k * step < rows.cols) weight[k] = load<kSize>(rows.weight + first + k * step);
  begin_kernel(stamps);
  allow_next_kernel();

  const In* x = rows.x + blockIdx.x * rows.x_stride;
  Out* out = rows.out + blockIdx.x * rows.out_stride;
  Vector kept[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (first + k * step < rows.cols) kept[k] = load<kSize>(x + first + k * step);
  float squares[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    squares[k] = sum_of_squares(kept[k]);
  for (int32_t i = first + kKept * step; i < rows.cols; i += kKept * step) {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (i + k * step < rows.cols) squares[k] += sum_of_squares(load<kSize>(x + i + k * step));
  }

  const float mean = block_sum(squares) / static_cast<float>(rows.cols);
  const float scale = 1.0f / sqrtf(mean + rows.eps);
  const auto store_at = [&](int32_t i, const Vector& values) {
    if constexpr (!std::is_same_v<Out, __nv_fp8_e4m3>) {
      if (i < rows.cols) store(out + i, values);
    } else if constexpr (kSize == 8) {
      if (i - first % (kSize * kWarpSize) >= rows.cols) return;  // whole warps compute a group's scale
      const float(&v)[8] = values.at;
      store_fp8(rows.fp8, blockIdx.x, i, make_float4(v[0], v[1], v[2], v[3]),
                make_float4(v[4], v[5], v[6], v[7]), i < rows.cols);
    }
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    store_at(first + k * step, scaled(kept[k], scale, weight[k]));
  const int32_t first_of_warp = first - first % (kSize * kWarpSize);
  for (int32_t i = kKept * step; first_of_warp + i < rows.cols; i += step) {
    const bool valid = first + i < rows.cols;
    store_at(first + i, valid
                            ? scaled(load<kSize>(x + first + i), scale, load<kSize>(rows.weight + first + i))
                            : Vector{});
  }
}

bool allows_vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

template <class In, class Out>
void launch_rms_norm(Launch& launch, const Tensor& x, const Weight& weight, float eps, const Tensor& out) {
  const Rows<In, Out> rows{static_cast<const In*>(x.data),
                           x.stride,
                           static_cast<const float*>(weight.data),
                           static_cast<Out*>(out.data),
                           out.stride,
                           static_cast<int32_t>(x.cols),
                           eps,
                           fp8_activations(out)};
  const bool vectors = x.cols % 8 == 0 && allows_vectors(x.data, x.stride) &&
                       allows_vectors(out.data, out.stride) && allows_vectors(weight.data, 0);
  if (out.dtype == DType::fp8 && (!vectors || x.cols % kFp8Columns != 0))
    unsupported("rms_norm to fp8", "aligned rows of a multiple of 128 columns", std::to_string(x.cols));
  const auto run = [&]<int kSize, int kKept>() {
    const int64_t accesses = (x.cols + kSize * kKept - 1) / (kSize * kKept);
    const auto threads = static_cast<uint32_t>(
        std::min<int64_t>((accesses + kWarpSize - 1) / kWarpSize * kWarpSize, kMaxThreads / kKept));
    launch("rms_norm", rms_norm_kernel<In, Out, kSize, kKept>, dim3(static_cast<uint32_t>(x.rows)),
           dim3(threads), 0, rows);
  };
  if (!vectors) return run.template operator()<1, 1>();
  x.rows < kManyRows ? run.template operator()<8, 1>() : run.template operator()<8, kKeptOfMany>();
}

}  // namespace

void rms_norm(Launch& launch, const Tensor& x, const Weight& weight, float eps, const Tensor& out) {
  require_equal("rms_norm: columns of weight", x.cols, weight.cols);
  require_equal("rms_norm: columns of out", x.cols, out.cols);
  require_equal("rms_norm: rows of out", x.rows, out.rows);
  if (weight.dtype != DType::f32) unsupported("rms_norm", "an f32 weight", name(weight.dtype));
  if (x.rows == 0) return;
  const auto into = [&]<class In>(In) {
    if (out.dtype == DType::f32) return launch_rms_norm<In, float>(launch, x, weight, eps, out);
    if (out.dtype == DType::bf16) return launch_rms_norm<In, __nv_bfloat16>(launch, x, weight, eps, out);
    if (out.dtype == DType::fp8) return launch_rms_norm<In, __nv_fp8_e4m3>(launch, x, weight, eps, out);
    unsupported("rms_norm", "out of f32, bf16 or fp8", name(out.dtype));
  };
  if (x.dtype == DType::f32) return into(float{});
  if (x.dtype == DType::bf16) return into(__nv_bfloat16{});
  unsupported("rms_norm", "x of f32 or bf16", name(x.dtype));
}

}  // namespace minfer::cuda
