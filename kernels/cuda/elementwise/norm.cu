#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/vector8.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/dtype.h"

/// out[t, i] (+)= scale * (norm(x[t])[i] * weight[i] + bias[i]): layer norms, norms that are added to the
/// residual stream, rows that are only scaled or converted, and the largest elements of rows (NormKind::cut). rms_norm.cu has plain RMS
/// norms.
///
///   x, out        [rows, cols] f32 or bf16, rows `stride` elements apart; out may be x unless it is added to
///   weight        [groups, cols] f32 or null: row t takes row t mod groups; bias [cols] f32 or null
///
/// One block a row. A thread takes two vectors of 8 elements and keeps them, and the vectors of out that it adds to, in registers,
/// so that all of a row is loaded at once. Rows that are longer than kMostKept or do not allow 16-byte accesses use one element a
/// thread at a time: a layer norm and a cut read these three times, an RMS norm twice, after the first time from the caches. Variances are
/// sums of squared distances from the mean. The thread that reads an element last writes it, so the op may run in place. It moves
/// rows * cols * (sizeof x + sizeof out) bytes, out twice if it is added to. The number of rows does not change how a row is computed.
namespace minfer::cuda {
namespace {

constexpr int kMostThreads = 1024;
/// Vectors that a thread keeps.
constexpr int kKept = 2;
constexpr int kKeepingThreads = 512;
constexpr int64_t kMostKept = int64_t{8} * kKept * kKeepingThreads;

template <class In, class Out>
struct NormRows {
  const In* x;
  int64_t x_stride;
  const float* weight;
  uint32_t weight_rows;
  const float* bias;
  Out* out;
  int64_t out_stride;
  int32_t cols;
  NormKind kind;
  float eps;
  float cut;
  float scale;
  bool add_to_out;

  /// The weight of the block's row.
  __device__ __forceinline__ const float* own_weight() const {
    return weight == nullptr ? nullptr : weight + int64_t{blockIdx.x % weight_rows} * cols;
  }
  __device__ __forceinline__ bool has_mean() const {
    return kind == NormKind::layer || kind == NormKind::cut;
  }
  /// Sets what normed() needs, by the mean of squared distances from the mean.
  __device__ __forceinline__ void set_scale(float variance, float& mean, float& inverse) const {
    if (kind == NormKind::cut) {
      mean += cut * sqrtf(variance);
    } else {
      inverse = 1.0f / sqrtf(variance + eps);
    }
  }
  __device__ __forceinline__ float normed(float x, float mean, float inverse) const {
    const float value = (x - mean) * inverse;
    return kind == NormKind::cut && value < 0.0f ? 0.0f : value;
  }
};

/// The sum over the block, in every thread. Only one call may use `warp_sums`.
__device__ __forceinline__ float block_sum(float value, float* warp_sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  value = warp_sum(value);
  if (lane == 0) warp_sums[warp] = value;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarpSize ? warp_sums[lane] : 0.0f);
}

template <class In, class Out>
__global__ void __launch_bounds__(kMostThreads) norm_kernel(NormRows<In, Out> rows, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ float warp_sums[2][kMostThreads / kWarpSize];
  begin_kernel(stamps);
  allow_next_kernel();
  const In* x = rows.x + blockIdx.x * rows.x_stride;
  Out* out = rows.out + blockIdx.x * rows.out_stride;
  const float* weight = rows.own_weight();
  const auto first = static_cast<int32_t>(threadIdx.x), step = static_cast<int32_t>(blockDim.x);
  const auto cols = static_cast<float>(rows.cols);
  float mean = 0.0f, inverse = 1.0f;
  if (rows.has_mean()) {
    float sum = 0.0f;
    for (int32_t i = first; i < rows.cols; i += step)
      sum += to_f32(x[i]);
    mean = block_sum(sum, warp_sums[0]) / cols;
  }
  if (rows.kind != NormKind::none) {
    float squares = 0.0f;
    for (int32_t i = first; i < rows.cols; i += step) {
      const float distance = to_f32(x[i]) - mean;
      squares = fmaf(distance, distance, squares);
    }
    rows.set_scale(block_sum(squares, warp_sums[1]) / cols, mean, inverse);
  }
  for (int32_t i = first; i < rows.cols; i += step) {
    float value = rows.normed(to_f32(x[i]), mean, inverse);
    if (weight != nullptr) value *= weight[i];
    if (rows.bias != nullptr) value += rows.bias[i];
    value *= rows.scale;
    out[i] = from_f32<Out>(rows.add_to_out ? to_f32(out[i]) + value : value);
  }
}

template <class In, class Out>
__global__ void __launch_bounds__(kKeepingThreads) norm_kept_kernel(NormRows<In, Out> rows, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ float warp_sums[2][kKeepingThreads / kWarpSize];
  begin_kernel(stamps);
  allow_next_kernel();
  const In* x = rows.x + blockIdx.x * rows.x_stride;
  Out* out = rows.out + blockIdx.x * rows.out_stride;
  const float* weights = rows.own_weight();
  const auto cols = static_cast<float>(rows.cols);
  const int32_t first = 8 * static_cast<int32_t>(threadIdx.x), step = 8 * static_cast<int32_t>(blockDim.x);
  Vector8 kept[kKept] = {}, before[kKept] = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int32_t i = first + k * step;
    if (i >= rows.cols) continue;
    kept[k] = load8(x + i);
    if (rows.add_to_out) before[k] = load8(out + i);
  }
  const auto sum_of = [&](auto&& of_element, float* sums) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (first + k * step >= rows.cols) continue;
#pragma unroll
      for (const float value : kept[k].at)
        sum += of_element(value);
    }
    return block_sum(sum, sums);
  };
  float mean = 0.0f, inverse = 1.0f;
  if (rows.has_mean()) mean = sum_of([](float value) { return value; }, warp_sums[0]) / cols;
  if (rows.kind != NormKind::none) {
    const float squares = sum_of([&](float value) { return (value - mean) * (value - mean); }, warp_sums[1]);
    rows.set_scale(squares / cols, mean, inverse);
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int32_t i = first + k * step;
    if (i >= rows.cols) continue;
    const Vector8 weight = weights != nullptr ? load8(weights + i) : Vector8{{1, 1, 1, 1, 1, 1, 1, 1}};
    const Vector8 bias = rows.bias != nullptr ? load8(rows.bias + i) : Vector8{};
    Vector8 result;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      result.at[j] = (rows.normed(kept[k].at[j], mean, inverse) * weight.at[j] + bias.at[j]) * rows.scale +
                     before[k].at[j];
    store8(out + i, result);
  }
}

template <class T>
bool allows_vectors(const T* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

template <class In, class Out>
void launch_norm(Launch& launch, const NormArgs& args) {
  const Tensor &x = args.x, &out = args.out;
  const NormRows<In, Out> rows{static_cast<const In*>(x.data),
                               x.stride,
                               static_cast<const float*>(args.weight.data),
                               std::max<uint32_t>(1, static_cast<uint32_t>(args.weight.rows)),
                               static_cast<const float*>(args.bias.data),
                               static_cast<Out*>(out.data),
                               out.stride,
                               static_cast<int32_t>(x.cols),
                               args.kind,
                               args.eps,
                               args.cut,
                               args.scale,
                               args.add_to_out};
  if (x.cols % 8 == 0 && x.cols <= kMostKept && allows_vectors(rows.x, x.stride) &&
      allows_vectors(rows.out, out.stride) && allows_vectors(rows.weight, 0) &&
      allows_vectors(rows.bias, 0)) {
    constexpr int64_t kColsOfWarp = 8 * kKept * kWarpSize;
    const auto warps = static_cast<uint32_t>((x.cols + kColsOfWarp - 1) / kColsOfWarp);
    return launch("norm", norm_kept_kernel<In, Out>, dim3(static_cast<uint32_t>(x.rows)),
                  dim3(warps * kWarpSize), 0, rows);
  }
  const auto threads = static_cast<uint32_t>(
      std::min<int64_t>((x.cols + kWarpSize - 1) / kWarpSize * kWarpSize, kMostThreads));
  launch("norm", norm_kernel<In, Out>, dim3(static_cast<uint32_t>(x.rows)), dim3(threads), 0, rows);
}

}  // namespace

void norm(Launch& launch, const NormArgs& args) {
  const Tensor &x = args.x, &out = args.out;
  if (args.is_plain_rms()) return rms_norm(launch, x, args.weight, args.eps, out);
  require_equal("norm: columns of out", x.cols, out.cols);
  require_equal("norm: rows of out", x.rows, out.rows);
  for (const Weight& vector : {args.weight, args.bias}) {
    if (!vector) continue;
    if (vector.dtype != DType::f32) unsupported("norm", "a weight and a bias of f32", name(vector.dtype));
    require_equal("norm: columns of weight and bias", x.cols, vector.cols);
  }
  if (args.kind != NormKind::rms && args.weight.rows > 1)
    unsupported("norm", "weights of groups for an RMS norm", std::to_string(args.weight.rows) + " rows");
  const bool has_weight = static_cast<bool>(args.weight);
  if ((args.kind == NormKind::none || args.kind == NormKind::cut) == has_weight)
    unsupported("norm", "a weight for a norm and none without", has_weight ? "one" : "none");
  if (args.add_to_out && (out.dtype != DType::f32 || out.data == x.data))
    unsupported("norm that is added", "an f32 output that is not x", name(out.dtype));
  if (x.rows == 0) return;
  using bf16 = __nv_bfloat16;
  if (x.dtype == DType::f32 && out.dtype == DType::f32) return launch_norm<float, float>(launch, args);
  if (x.dtype == DType::f32 && out.dtype == DType::bf16) return launch_norm<float, bf16>(launch, args);
  if (x.dtype == DType::bf16 && out.dtype == DType::f32) return launch_norm<bf16, float>(launch, args);
  if (x.dtype == DType::bf16 && out.dtype == DType::bf16) return launch_norm<bf16, bf16>(launch, args);
  unsupported("norm", "x and out of f32 or bf16", x.dtype == DType::f32 ? name(out.dtype) : name(x.dtype));
}

}  // namespace minfer::cuda
