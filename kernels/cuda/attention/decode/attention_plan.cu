// The plan of a decode step's attention, once a step for all layers.
//
//   context_len  [num_decode_sequences] i32
//   shares       [windows, num_shares] DecodeShare
//
// A block a window: a prefix sum of the sequences' chunks in shared memory, then a binary search for each share. A
// sequence without context (padding) has one empty chunk in each unit, so that its rows are written.
//
// The kernel never allows its successor to start early, and fences: attention reads the plan before
// begin_kernel().
#include <string>

#include "kernels/cuda/attention/decode/attention_plan.h"
#include "kernels/cuda/device/warp.cuh"

namespace minfer::cuda {
namespace {

constexpr int kThreads = 1024;

/// first_chunk[s] = chunks of a unit of all sequences before s, for s in [0, num_sequences].
__device__ void sum_chunks(const int32_t* context_len, int32_t num_sequences, int32_t window,
                           int32_t* first_chunk) {
  __shared__ int32_t warp_sums[kThreads / 32];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t before = 0;
  for (int32_t first = 0; first < num_sequences; first += kThreads) {
    const int32_t sequence = first + thread;
    int32_t chunks = 0;
    if (sequence < num_sequences) {
      chunks = DecodeChunks::of(context_len[sequence], window).count;
    }
    const int32_t in_warp = warp_sum_up_to(chunks);
    if (thread % 32 == 31) warp_sums[thread / 32] = in_warp;
    __syncthreads();
    if (thread < 32) warp_sums[thread] = warp_sum_up_to(warp_sums[thread]);
    __syncthreads();
    const int32_t through = before + in_warp + (thread >= 32 ? warp_sums[thread / 32 - 1] : 0);
    if (sequence < num_sequences) first_chunk[sequence + 1] = through;
    before += warp_sums[kThreads / 32 - 1];
    __syncthreads();
  }
  if (thread == 0) first_chunk[0] = 0;
  __syncthreads();
}

__device__ DecodeShare make_share(const int32_t* first_chunk, int32_t num_sequences, int32_t units,
                                  int32_t begin, int32_t end, int32_t share) {
  int32_t low = 0, high = num_sequences;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (first_chunk[middle] * units <= begin ? low : high) = middle;
  }
  const int32_t chunks = first_chunk[low + 1] - first_chunk[low];
  const int32_t rest = begin - first_chunk[low] * units;
  return {low, rest / chunks, rest % chunks, chunks, begin, end, share, 0};
}

__global__ __launch_bounds__(kThreads) void plan_decode_kernel(const int32_t* context_len,
                                                               int32_t num_sequences, int32_t units,
                                                               DecodeWindows windows, DecodeShare* shares,
                                                               int32_t num_shares, Stamp stamp) {
  extern __shared__ int32_t first_chunk[];
  begin_kernel(stamp);
  shares += blockIdx.x * num_shares;
  sum_chunks(context_len, num_sequences, windows.keys[blockIdx.x], first_chunk);
  const int32_t total = first_chunk[num_sequences] * units;
  const int32_t share = max(kSmallestShare, (total + num_shares - 1) / num_shares);
  for (auto i = static_cast<int32_t>(threadIdx.x); i < num_shares; i += kThreads) {
    const int32_t begin = i * share;
    if (begin < total) {
      shares[i] = make_share(first_chunk, num_sequences, units, begin, min(begin + share, total), share);
    } else {
      shares[i] = {};
    }
  }
  __threadfence();
}

}  // namespace

DecodeWindows DecodeWindows::of(std::span<const int32_t> windows) {
  DecodeWindows all;
  for (const int32_t window : windows) {
    if (window < 0) unsupported("attention", "windows of 0 keys or more", std::to_string(window));
    if (std::find(all.keys, all.keys + all.count, window) != all.keys + all.count) continue;
    if (all.count == kMost) {
      unsupported("attention", "up to " + std::to_string(kMost - 1) + " sizes of windows", "more");
    }
    all.keys[all.count++] = window;
  }
  return all;
}

int32_t DecodeWindows::find(int32_t window) const {
  const int32_t* end = keys + count;
  const int32_t* found = std::find(keys, end, window);
  if (found == end) {
    unsupported("attention", "a window that StepLimits::windows has", std::to_string(window));
  }
  return static_cast<int32_t>(found - keys);
}

void plan_decode(Launch& launch, const ForwardBatch& batch, int32_t units_per_sequence,
                 const DecodeWindows& windows, DecodeShare* shares, int32_t num_shares) {
  const size_t shared_bytes = static_cast<size_t>(batch.num_decode_sequences + 1) * sizeof(int32_t);
  launch("attention plan", plan_decode_kernel, dim3(static_cast<unsigned>(windows.count)), dim3(kThreads),
         shared_bytes, batch.context_len, batch.num_decode_sequences, units_per_sequence, windows, shares,
         num_shares);
}

}  // namespace minfer::cuda
