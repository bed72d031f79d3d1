#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/dtype.h"

// Residual streams of a token, mixed by numbers of its own (MixStreamsArgs has the formulas).
//
//   streams  [tokens, count * cols] f32, in place; x [tokens, cols] f32
//   routed   [tokens, count] f32; coefs [count * count or count, count] f32; weight [cols] f32
//
// One block a token. A thread takes one column of all streams at a time. Bytes: each tensor once; match reads the streams again from the
// caches. Sums have one order, so the bits of a token depend on nothing else in the step.
namespace minfer::cuda {
namespace {

constexpr int kMostThreads = 1024;

struct StreamParams {
  MixStreamsArgs::Kind kind;
  float* streams;
  int64_t stride;
  const float* routed;
  int64_t routed_stride;
  float scale;
  const float* coefs;
  const float* weight;
  float* x;
  int64_t x_stride;
  int32_t count, cols;
};

/// Sets factors[k] of streams behind the first, for match. All threads call it.
__device__ __forceinline__ void find_factors(const StreamParams& p, const float* streams, float* factors) {
  __shared__ float warp_sums[kMaxStreams][kMostThreads / kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int k = 0; k < p.count; ++k) {
    float squares = 0.0f;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < p.cols; i += static_cast<int32_t>(blockDim.x))
      squares = fmaf(streams[k * p.cols + i], streams[k * p.cols + i], squares);
    squares = warp_sum(squares);
    if (lane == 0) warp_sums[k][warp] = squares;
  }
  __syncthreads();
  const bool has_sum = lane < static_cast<int>(blockDim.x) / kWarpSize;
  const auto mean_square = [&](int k) {
    return warp_sum(has_sum ? warp_sums[k][lane] : 0.0f) / static_cast<float>(p.cols);
  };
  const float first = mean_square(0);
  for (int k = 1; k < p.count; ++k) {
    const float factor = sqrtf(first / fmaxf(mean_square(k), kLeastMeanSquare));
    if (threadIdx.x == 0) factors[k] = factor;
  }
}

__global__ void __launch_bounds__(kMostThreads) mix_streams_kernel(StreamParams p, Stamps stamps) {
  using Kind = MixStreamsArgs::Kind;
  const EndStamp end_stamp(stamps);
  __shared__ float coefs[kMaxStreams * kMaxStreams];
  begin_kernel(stamps);
  allow_next_kernel();
  float* streams = p.streams + blockIdx.x * p.stride;
  float* x = p.x + blockIdx.x * p.x_stride;
  if (p.kind == Kind::match) {
    find_factors(p, streams, coefs);
  } else if (const int num_coefs = p.kind == Kind::predict ? p.count * p.count : p.count;
             static_cast<int>(threadIdx.x) < num_coefs) {
    float sum = 0.0f;
    for (int j = 0; j < p.count; ++j) {
      const float routed = p.routed[blockIdx.x * p.routed_stride + j];
      sum = fmaf(p.coefs[static_cast<int>(threadIdx.x) * p.count + j], tanhf(p.scale * routed), sum);
    }
    coefs[threadIdx.x] = sum;
  }
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < p.cols; i += static_cast<int32_t>(blockDim.x)) {
    float before[kMaxStreams] = {};
#pragma unroll
    for (int k = 0; k < kMaxStreams; ++k)
      if (k < p.count) before[k] = streams[k * p.cols + i];
    const float difference = p.kind == Kind::correct ? x[i] - before[0] : 0.0f;
    float first = before[0], sum = before[0];
#pragma unroll
    for (int k = 0; k < kMaxStreams; ++k) {
      if (k >= p.count) continue;
      float value = before[k];
      if (p.kind == Kind::predict) {
#pragma unroll
        for (int j = 0; j < kMaxStreams; ++j)
          if (j < p.count) value = fmaf(coefs[k * p.count + j], before[j], value);
      } else if (p.kind == Kind::correct) {
        value = fmaf(1.0f + coefs[k], difference, value);
      } else if (k > 0) {
        value *= coefs[k];
        sum += value;
      }
      if (k == 0) first = value;
      streams[k * p.cols + i] = value;
    }
    x[i] = p.kind == Kind::predict ? first
           : p.kind == Kind::match ? sum / static_cast<float>(p.count)
                                   : p.weight[i] * first;
  }
}

}  // namespace

void mix_streams(Launch& launch, const MixStreamsArgs& args) {
  const int64_t rows = args.streams.rows, cols = args.x.cols, count = cols > 0 ? args.count() : 0;
  if (count < 2 || count > kMaxStreams)
    unsupported("mix_streams", "2 to " + std::to_string(kMaxStreams) + " streams", std::to_string(count));
  check_f32("mix_streams: streams", args.streams, rows, count * cols);
  check_f32("mix_streams: x", args.x, rows, cols);
  if (args.kind != MixStreamsArgs::Kind::match) {
    const bool predicts = args.kind == MixStreamsArgs::Kind::predict;
    check_f32("mix_streams: routed", args.routed, rows, count);
    check_f32("mix_streams: coefs", args.coefs, predicts ? count * count : count, count);
    if (!predicts) check_f32("mix_streams: weight", args.weight, 1, cols);
  }
  if (rows == 0) return;
  const StreamParams params{.kind = args.kind,
                            .streams = args.streams.f32(),
                            .stride = args.streams.stride,
                            .routed = args.routed.f32(),
                            .routed_stride = args.routed.stride,
                            .scale = args.scale,
                            .coefs = static_cast<const float*>(args.coefs.data),
                            .weight = static_cast<const float*>(args.weight.data),
                            .x = args.x.f32(),
                            .x_stride = args.x.stride,
                            .count = static_cast<int32_t>(count),
                            .cols = static_cast<int32_t>(cols)};
  const auto threads =
      static_cast<unsigned>(std::min<int64_t>((cols + kWarpSize - 1) / kWarpSize * kWarpSize, kMostThreads));
  launch("mix_streams", mix_streams_kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0, params);
}

}  // namespace minfer::cuda
