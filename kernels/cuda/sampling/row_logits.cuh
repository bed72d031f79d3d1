#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/row_pass.cuh"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_packed.h"

/// The work of sample.cu on a row of logits before a token is drawn: loads its slice, then applies mask, biases and penalties.
namespace minfer::cuda {

/// Threads of a block if blocks share multiprocessors, and if each has one alone: few rows wait for latencies.
inline constexpr int kSharingThreads = 256, kAloneThreads = 1024;
inline constexpr int kWarp = 32;

__device__ __forceinline__ int32_t block_threads() {
  return static_cast<int32_t>(blockDim.x);
}

struct SampleParams {
  const float* logits;
  int64_t stride;
  int32_t first_row;  ///< index in the step of the first row of logits
  int32_t rows;
  int32_t vocabulary;
  bool vectors;          ///< rows allow 16-byte loads
  bool bulk;             ///< slices, too, are multiples of 16 bytes, as bulk copies need, in shared memory
  float* storage;        ///< [rows * group] padded slices, or null: they are in shared memory
  int32_t slice;         ///< tokens of a slice, a multiple of 4
  int32_t padded_slice;  ///< padded_run_slice()
  bool logprobs;
  const std::byte* packed;
  SamplingTablesView tables;
  const int32_t* previous_tokens;
  int32_t* tokens;
  RowResult* results;
};

/// Logits of tokens i ... i + 3; -inf from `end` on.
__device__ __forceinline__ float4 load_four(const SampleParams& params, const float* logits, int32_t i,
                                            int32_t end) {
  if (params.vectors && i + 4 <= end) return __ldcs(reinterpret_cast<const float4*>(logits + i));
  const auto at = [&](int32_t k) { return k < end ? logits[k] : -INFINITY; };
  return {at(i), at(i + 1), at(i + 2), at(i + 3)};
}

/// Calls visit(four logits, first token) for a thread's tokens of [begin, end), ascending. Many loads are in
/// flight at a time.
template <class Visit>
__device__ void read_logits(const SampleParams& params, int32_t row, int32_t begin, int32_t end,
                            const Visit& visit) {
  constexpr int kInFlight = 8;
  const float* logits = params.logits + row * params.stride;
  const int32_t step = 4 * block_threads();
  for (int32_t base = begin + 4 * static_cast<int32_t>(threadIdx.x); base < end; base += step * kInFlight) {
    float4 fours[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int32_t i = base + step * k;
      if (i < end) fours[k] = load_four(params, logits, i, end);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int32_t i = base + step * k;
      if (i < end) visit(fours[k], i);
    }
  }
}

/// Copies a slice, with -inf behind it up to params.padded_slice. Returns the largest logit that this thread copied.
template <int kThreads>
__device__ __forceinline__ float load_slice(const SampleParams& params, int32_t row, const RowSlice& slice) {
  constexpr int kInFlight = kThreads < kAloneThreads ? 8 : 4;
  const float* logits = params.logits + row * params.stride + slice.first;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  float largest = -INFINITY;
  const auto see = [&](float logit) {
    largest = fmaxf(largest, logit);  // NaN and a number give the number
    return logit;
  };
  if (params.vectors && slice.size % 4 == 0) {
#pragma unroll 1
    for (int32_t base = 4 * thread; base < params.padded_slice; base += 4 * kThreads * kInFlight) {
      float4 fours[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int32_t i = base + 4 * kThreads * k;
        fours[k] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        if (i < slice.size) fours[k] = __ldcs(reinterpret_cast<const float4*>(logits + i));
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int32_t i = base + 4 * kThreads * k;
        const float4 four = {see(fours[k].x), see(fours[k].y), see(fours[k].z), see(fours[k].w)};
        if (i < params.padded_slice) *reinterpret_cast<float4*>(slice.values + i) = four;
      }
    }
    return largest;
  }
#pragma unroll 4
  for (int32_t i = thread; i < params.padded_slice; i += kThreads)
    slice.values[i] = i < slice.size ? see(__ldcs(logits + i)) : -INFINITY;
  return largest;
}

/// Sets the tokens of the slice that a mask does not allow to -inf. A warp's 32 tokens are in one or two of its words.
__device__ void forbid_others(const uint32_t* mask, const RowSlice& slice) {
  for (auto i = static_cast<int32_t>(threadIdx.x); i < slice.size; i += block_threads()) {
    const int32_t token = slice.first + i;
    if ((mask[token / 32] >> (token % 32) & 1) == 0) slice.values[i] = -INFINITY;
  }
}

/// Adds biases in the order in which they are listed: a token may be listed more than once.
__device__ void add_biases(const PackedBias* biases, int32_t count, const RowSlice& slice) {
  if (threadIdx.x >= kWarp) return;
  const auto lane = static_cast<int32_t>(threadIdx.x);
  for (int32_t base = 0; base < count; base += kWarp) {
    const bool listed = base + lane < count;
    const PackedBias bias = listed ? biases[base + lane] : PackedBias{-1, 0.0f};
    const int32_t at = bias.token - slice.first;
    const bool mine = listed && at >= 0 && at < slice.size;
    const uint32_t same_token = __match_any_sync(~0u, bias.token);
    const int turn = __popc(same_token & ((1u << lane) - 1));
    const int turns = static_cast<int>(__reduce_max_sync(~0u, mine ? static_cast<uint32_t>(turn + 1) : 0u));
    for (int t = 0; t < turns; ++t) {
      if (mine && t == turn) {
        const float sum = slice.values[at] + bias.bias;
        slice.values[at] = isnan(sum) ? -INFINITY : sum;  // infinity, forbidden
      }
      __syncwarp();
    }
  }
}

/// Rounds the same operations as the CPU backend: no fused multiply-add.
__device__ float penalised(float logit, const PackedRow& row, int32_t output_count, bool in_prompt) {
  if (in_prompt || output_count > 0) {
    logit =
        logit > 0.0f ? __fdiv_rn(logit, row.repetition_penalty) : __fmul_rn(logit, row.repetition_penalty);
  }
  if (output_count > 0) {
    const float frequency = __fmul_rn(row.frequency_penalty, static_cast<float>(output_count));
    logit = __fsub_rn(logit, __fadd_rn(row.presence_penalty, frequency));
  }
  return logit;
}

/// Counts the new tokens in the slice, then penalises the seen tokens, and the pending one as if it were
/// counted. `counts`: the slice's.
__device__ void add_penalties(const PackedRow& row, uint32_t* counts, int32_t pending,
                              const RowSlice& slice) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < row.num_new) {
    const int32_t at = row.new_tokens[thread] - slice.first;
    if (at >= 0 && at < slice.size) atomicAdd(counts + at, kOneOutput);
  }
  __syncthreads();
  for (int32_t i = 4 * thread; i < slice.size; i += 4 * block_threads()) {
    const uint4 four =
        __ldcg(reinterpret_cast<const uint4*>(counts + i));  // not from the L1, which atomics bypass
    const uint32_t seen[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t count = seen[k] + (slice.first + i + k == pending ? kOneOutput : 0);
      if (count == 0) continue;
      slice.values[i + k] = penalised(slice.values[i + k], row, static_cast<int32_t>(count / kOneOutput),
                                      (count & kInPrompt) != 0);
    }
  }
}

__device__ __forceinline__ bool changes_logits(const PackedRow& row) {
  return row.mask >= 0 || row.num_biases > 0 || row.is_penalised != 0;
}

/// Needs a barrier of the block before it; ends with one.
static __device__ __noinline__ void change_logits(const SampleParams& params, const PackedRow& row,
                                                  RowSlice slice) {
  if (row.mask >= 0) {
    forbid_others(params.tables.masks + row.mask * params.tables.mask_words, slice);
    __syncthreads();
  }
  if (row.num_biases > 0) {
    const PackedBias* biases = row.num_biases <= kMaxLooseBiases
                                   ? row.biases
                                   : params.tables.biases + int64_t{row.slot} * kMaxRowBiases;
    add_biases(biases, row.num_biases, slice);
    __syncthreads();
  }
  if (row.is_penalised != 0) {
    const int32_t pending = row.pending_row >= 0 ? params.previous_tokens[row.pending_row] : -1;
    add_penalties(row, params.tables.counts + row.slot * params.tables.stride + slice.first, pending, slice);
    __syncthreads();
  }
}

}  // namespace minfer::cuda
