// Makes the plan of a decode step's attention, once a step for all layers.
//
//   context_len  [num_decode_sequences] i32
//   shares       [plans, most shares of a plan] DecodeShare
//
// One block a plan, for layers of one kind: a prefix sum of the sequences' chunks in shared memory, then a binary search
// for each share. A sequence without context (padding) has one empty chunk in each unit, so that its rows are written.
//
// A block whose share crosses the end of a unit joins and merges twice, one part after the other. With few
// chunks this takes longer than the chunks do (8B, one sequence of 550 tokens: 10.6 us a layer, 6.8 if units
// happen to be whole shares). So the line fills each unit's chunks up to whole shares, if all units then still
// fit on the blocks with a share that is little larger. No block computes the chunks behind a unit's own.
//
// The kernel never lets its successor start early, and it fences: attention reads the plan before
// begin_kernel().
#include <string>

#include "kernels/cuda/attention/decode/attention_plan.h"
#include "kernels/cuda/ptx/warp.cuh"

namespace minfer::cuda {
namespace {

constexpr int kThreads = 1024;
/// Chunks that a block multiplies in the time that the end of a second segment takes.
constexpr int32_t kChunksOfAnEnd = 8;

struct DecodeStep {
  const int32_t* context_len;
  int32_t num_sequences;
  int32_t units;           ///< of a sequence
  AttentionWindow window;  ///< of the plan

  /// Chunks of each unit of a sequence.
  __device__ int32_t chunks(int32_t sequence) const {
    return DecodeChunks::of(context_len[sequence], window).count;
  }
};

__device__ int32_t shares_of(int32_t chunks, int32_t share) {
  return (chunks + share - 1) / share;
}

/// first_chunk[s] = chunks of one unit of all sequences before s, for s in [0, num_sequences], with each unit filled up to whole shares.
__device__ void sum_chunks(const DecodeStep& step, int32_t share, int32_t* first_chunk) {
  __shared__ int32_t warp_sums[kThreads / 32];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t before = 0;
  for (int32_t first = 0; first < step.num_sequences; first += kThreads) {
    const int32_t sequence = first + thread;
    int32_t chunks = 0;
    if (sequence < step.num_sequences) chunks = shares_of(step.chunks(sequence), share) * share;
    const int32_t in_warp = warp_sum_up_to(chunks);
    if (thread % 32 == 31) warp_sums[thread / 32] = in_warp;
    __syncthreads();
    if (thread < 32) warp_sums[thread] = warp_sum_up_to(warp_sums[thread]);
    __syncthreads();
    const int32_t through = before + in_warp + (thread >= 32 ? warp_sums[thread / 32 - 1] : 0);
    if (sequence < step.num_sequences) first_chunk[sequence + 1] = through;
    before += warp_sums[kThreads / 32 - 1];
    __syncthreads();
  }
  if (thread == 0) first_chunk[0] = 0;
  __syncthreads();
}

/// Returns the smallest share, `least` or more, with which each share has chunks of one unit alone. Returns 0 if that
/// takes more than `num_shares` shares, or a share of `least` + kChunksOfAnEnd chunks or more.
__device__ int32_t find_whole_share(const DecodeStep& step, int32_t num_shares, int32_t least) {
  __shared__ int32_t fits[kChunksOfAnEnd];
  if (step.num_sequences * step.units > num_shares) return 0;
  const auto warp = static_cast<int32_t>(threadIdx.x) / 32, lane = static_cast<int32_t>(threadIdx.x) % 32;
  if (warp < kChunksOfAnEnd) {
    int32_t shares = 0;
    for (int32_t s = lane; s < step.num_sequences; s += 32)
      shares += shares_of(step.chunks(s), least + warp);
    shares = __reduce_add_sync(kWholeWarp, shares);
    if (lane == 0) fits[warp] = shares * step.units <= num_shares ? 1 : 0;
  }
  __syncthreads();
  for (int32_t more = 0; more < kChunksOfAnEnd; ++more)
    if (fits[more] != 0) return least + more;
  return 0;
}

/// `first_chunk`: filled up as in the line.
__device__ DecodeShare make_share(const DecodeStep& step, const int32_t* first_chunk, int32_t begin,
                                  int32_t end, int32_t share) {
  int32_t low = 0, high = step.num_sequences;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (first_chunk[middle] * step.units <= begin ? low : high) = middle;
  }
  const int32_t in_line = first_chunk[low + 1] - first_chunk[low];
  const int32_t chunks = step.chunks(low);
  const int32_t rest = begin - first_chunk[low] * step.units;
  const int32_t chunk = rest % in_line;
  const int32_t own_end = in_line == chunks ? end : min(end, begin - chunk + chunks);
  return {low, rest / in_line, chunk, chunks, begin, own_end, share, 0};
}

__global__ __launch_bounds__(kThreads) void plan_decode_kernel(const int32_t* context_len,
                                                               int32_t num_sequences, DecodePlans plans,
                                                               DecodeShare* shares, int32_t most_shares,
                                                               Stamp stamp) {
  extern __shared__ int32_t first_chunk[];
  begin_kernel(stamp);
  shares += blockIdx.x * most_shares;
  const DecodePlan& plan = plans.plans[blockIdx.x];
  const int32_t units = plan.units, num_shares = plan.num_shares;
  const DecodeStep step{context_len, num_sequences, units, plan.kind.window};
  sum_chunks(step, 1, first_chunk);
  int32_t total = first_chunk[num_sequences] * units;
  int32_t share = max(kSmallestShare, shares_of(total, num_shares));
  const int32_t whole = find_whole_share(step, num_shares, share);
  if (whole > 0) {
    share = whole;
    sum_chunks(step, share, first_chunk);
    total = first_chunk[num_sequences] * units;
  }
  for (auto i = static_cast<int32_t>(threadIdx.x); i < num_shares; i += kThreads) {
    const int32_t begin = i * share;
    if (begin < total) {
      shares[i] = make_share(step, first_chunk, begin, min(begin + share, total), share);
    } else {
      shares[i] = {};
    }
  }
  __threadfence();
}

}  // namespace

DecodePlans DecodePlans::of(std::span<const AttentionKind> kinds, int32_t heads, int32_t num_sms) {
  DecodePlans all;
  for (const AttentionKind& kind : kinds) {
    if (kind.window.keys < 0)
      unsupported("attention", "windows of 0 keys or more", std::to_string(kind.window.keys));
    if (std::ranges::count(all.plans, all.plans + all.count, kind, &DecodePlan::kind) > 0) continue;
    if (all.count == kMaxAttentionKinds) {
      unsupported("attention", "layers of up to " + std::to_string(kMaxAttentionKinds) + " kinds", "more");
    }
    const DecodeUnits units = DecodeUnits::of_group((kind.heads > 0 ? kind.heads : heads) / kind.kv_heads);
    all.plans[all.count++] = {.kind = kind,
                              .per_kv_head = units,
                              .units = kind.kv_heads * units.per_kv_head,
                              .num_shares = decode_blocks_per_sm(kind.head_size) * num_sms};
  }
  return all;
}

int32_t DecodePlans::find(const AttentionKind& kind) const {
  const DecodePlan* end = plans + count;
  const DecodePlan* found = std::ranges::find(plans, end, kind, &DecodePlan::kind);
  if (found == end) {
    unsupported("attention", "a kind that StepLimits::attention_kinds has",
                std::to_string(kind.kv_heads) + " KV heads of " + std::to_string(kind.head_size) +
                    (kind.heads > 0 ? " and " + std::to_string(kind.heads) + " heads" : "") +
                    " with a window of " + std::to_string(kind.window.keys));
  }
  return static_cast<int32_t>(found - plans);
}

int32_t DecodePlans::most_shares() const {
  return std::ranges::max_element(plans, {}, &DecodePlan::num_shares)->num_shares;
}
int32_t DecodePlans::most_units() const {
  return std::ranges::max_element(plans, {}, &DecodePlan::units)->units;
}

void plan_decode(Launch& launch, const ForwardBatch& batch, const DecodePlans& plans, DecodeShare* shares) {
  const size_t shared_bytes = static_cast<size_t>(batch.num_decode_sequences + 1) * sizeof(int32_t);
  launch("attention plan", plan_decode_kernel, dim3(static_cast<unsigned>(plans.count)), dim3(kThreads),
         shared_bytes, batch.context_len, batch.num_decode_sequences, plans, shares, plans.most_shares());
}

}  // namespace minfer::cuda
