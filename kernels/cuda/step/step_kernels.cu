#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/step/step_memory.h"

// The first and the last kernel of a step.
//
//   step_inputs   staged inputs (page-locked host memory, read over PCIe) -> device arrays. A few blocks, whose threads
//                 stride over every array, each array starting at another block: a read over PCIe takes longer than a
//                 microsecond, so the reads of a small step overlap. Bytes: 12 a token (16 with a block table of windows),
//                 8 a sequence (12 with states), 4 a new KV block, and the packed sampling rows.
//   step_results  one block: stamps, drawn tokens and the number of experts chosen in each layer -> page-locked
//                 host memory, then the end stamp, then the step counter.
namespace minfer::cuda {
namespace {

constexpr int kInputBlocks = 16;
constexpr int kThreads = 256;

template <class T>
__device__ const T* staged_array(const std::byte* staged, uint32_t offset) {
  return reinterpret_cast<const T*>(staged + offset);
}

__device__ void copy_tokens(const StepPointers& p, const std::byte* staged, const StagedOffsets& at,
                            const StagedHeader& header, int32_t num_tokens, int first, int stride) {
  const auto* ids = staged_array<int32_t>(staged, at.token_ids);
  const auto* positions = staged_array<int32_t>(staged, at.positions);
  const auto* slots = staged_array<int32_t>(staged, at.slots);
  const auto* window_slots = staged_array<int32_t>(staged, at.window_slots);
  for (int i = first; i < num_tokens; i += stride) {
    const bool is_real = i < header.num_tokens;
    const int32_t id = is_real ? ids[i] : 0;
    p.token_ids[i] = id >= 0 ? id : p.tokens[-1 - id];
    p.positions[i] = is_real ? positions[i] : 0;
    p.slots[i] = is_real ? slots[i] : -1;
    if (p.window_slots != nullptr) p.window_slots[i] = is_real ? window_slots[i] : -1;
  }
}

/// Padding sequences have no context and no slot of states.
__device__ void copy_sequences(const StepPointers& p, const std::byte* staged, const StagedOffsets& at,
                               const StagedHeader& header, const LaunchSizes& sizes, int first, int stride) {
  const auto* query_start = staged_array<int32_t>(staged, at.query_start);
  const auto* context_len = staged_array<int32_t>(staged, at.context_len);
  const auto* state_slots = staged_array<int32_t>(staged, at.state_slots);
  for (int i = first; i <= sizes.sequences; i += stride) {
    const int padding = max(0, i - header.num_sequences);
    p.query_start[i] = query_start[i - padding] + padding * sizes.padding_query();
    if (i == sizes.sequences) continue;
    const bool is_real = i < header.num_sequences;
    p.context_len[i] = is_real ? context_len[i] : 0;
    if (p.state_slots != nullptr) p.state_slots[i] = is_real ? state_slots[i] : -1;
  }
}

/// One warp takes a change.
__device__ void copy_block_table(const StepPointers& p, const std::byte* staged, const StagedOffsets& at,
                                 const StagedHeader& header, int32_t max_blocks, int first, int stride) {
  const auto* changes = staged_array<StagedChange>(staged, at.changes);
  const auto* blocks = staged_array<int32_t>(staged, at.change_blocks);
  for (int c = first / kWarpSize; c < header.num_changes; c += stride / kWarpSize) {
    const StagedChange change = changes[c];
    int32_t* row = p.block_table + int64_t{change.row} * max_blocks + change.first;
    for (int i = first % kWarpSize; i < change.count; i += kWarpSize)
      row[i] = blocks[change.blocks_at + i];
  }
}

__global__ void __launch_bounds__(kThreads) step_inputs(StepPointers p, StagedOffsets at, LaunchSizes sizes,
                                                        int32_t max_blocks, int32_t max_rows, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const uint32_t slot = *p.step % 2;
  const std::byte* staged = p.staged[slot];
  const StagedHeader header = *reinterpret_cast<const StagedHeader*>(staged);
  constexpr int kStride = kInputBlocks * kThreads;
  const auto first_from = [](int block) {
    return static_cast<int>((blockIdx.x + kInputBlocks - block) % kInputBlocks * kThreads + threadIdx.x);
  };
  if (first_from(0) == 0) *p.num_tokens = header.num_tokens;
  copy_tokens(p, staged, at, header, sizes.tokens, first_from(0), kStride);
  if (header.num_sequences > 0) copy_sequences(p, staged, at, header, sizes, first_from(3), kStride);
  copy_block_table(p, staged, at, header, max_blocks, first_from(5), kStride);
  const auto* logit_rows = staged_array<int32_t>(staged, at.logit_rows);
  for (int i = first_from(8); i < sizes.logit_rows; i += kStride)
    p.logit_rows[i] = i < header.num_logit_rows ? logit_rows[i] : i;
  const auto* sampling = staged_array<int4>(staged, at.sampling);
  for (int i = first_from(10); i < (header.sampling_bytes + 15) / 16; i += kStride)
    reinterpret_cast<int4*>(p.sampling)[i] = sampling[i];
  for (int i = first_from(13); i < max_rows; i += kStride)
    p.previous_tokens[i] = p.tokens[i];
  for (int i = first_from(14); i < p.routed_layers * p.expert_words; i += kStride)
    p.chosen_experts[i] = 0;
}

__global__ void __launch_bounds__(kThreads)
    step_results(StepPointers p, int32_t num_stamps, int32_t result_bytes, int32_t num_routed, Stamp stamp) {
  begin_kernel(stamp);
  const uint32_t slot = *p.step % 2;
  __syncthreads();
  for (int i = threadIdx.x; i < num_stamps; i += blockDim.x)
    p.host_stamps[slot][1 + i] = p.stamps[i];
  for (int i = threadIdx.x; i < num_routed; i += blockDim.x) {
    int32_t experts = 0;
    for (int w = 0; w < p.expert_words; ++w)
      experts += __popc(p.chosen_experts[i * p.expert_words + w]);
    p.host_experts[slot][i] = experts;
  }
  for (int i = threadIdx.x; i < (result_bytes + 3) / 4; i += blockDim.x) {
    reinterpret_cast<int32_t*>(p.host_results[slot])[i] = reinterpret_cast<const int32_t*>(p.results)[i];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    if (num_stamps > 0) p.host_stamps[slot][0] = global_timer();
    *p.step += 1;
  }
  allow_next_kernel();
}

}  // namespace

void StepMemory::launch_inputs(Launch& launch, const LaunchSizes& sizes) const {
  launch("step_inputs", step_inputs, kInputBlocks, kThreads, 0, pointers_, offsets_, sizes,
         limits_.max_blocks, limits_.max_logit_rows);
}

void StepMemory::launch_results(Launch& launch, int32_t num_stamps, int32_t num_rows,
                                int32_t num_routed) const {
  const auto result_bytes = static_cast<int32_t>(num_rows > 0 ? SampleOps::result_bytes(num_rows) : 0);
  launch("step_results", step_results, 1, kThreads, 0, pointers_, num_stamps, result_bytes, num_routed);
}

}  // namespace minfer::cuda
