#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/moe_route.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Sizes with which a step's kernels are launched: those of its batch, or the larger ones of a captured graph.
/// If a graph has as many tokens as sequences, each sequence brings one token, and padding sequences do too.
/// Otherwise padding sequences bring none, and padding tokens belong to no sequence.
struct LaunchSizes {
  int32_t tokens = 0;
  int32_t sequences = 0;
  int32_t logit_rows = 0;

  /// Tokens of a padding sequence.
  constexpr int32_t padding_query() const { return tokens == sequences ? 1 : 0; }
};

/// The beginning of every step's inputs in page-locked memory.
struct StagedHeader {
  int32_t num_tokens;
  int32_t num_sequences;
  int32_t num_logit_rows;
  int32_t num_changes;
  int32_t sampling_bytes;
};

/// New blocks in a row of the block table.
struct StagedChange {
  int32_t row;
  int32_t first;  ///< index in the row
  int32_t count;
  int32_t blocks_at;  ///< index of its first block among the blocks of all changes
};

/// Where the parts of a step's inputs lie in page-locked memory, in bytes from the header.
struct StagedOffsets {
  uint32_t token_ids, positions, slots, window_slots, query_start, context_len, state_slots, logit_rows,
      changes, change_blocks, sampling;
};

/// Device pointers that the step's first and last kernels use; the same for all steps.
struct StepPointers {
  // Inputs: written by the first kernel.
  int32_t *token_ids, *positions, *slots, *query_start, *context_len, *logit_rows, *block_table;
  int32_t* window_slots;  ///< null if one block table serves all layers
  int32_t* state_slots;   ///< null if sequences have no states
  std::byte* sampling;
  int32_t* previous_tokens;
  // Outputs.
  int32_t* tokens;
  std::byte* results;
  unsigned long long* stamps;  ///< of the current step
  uint32_t* step;              ///< steps finished so far
  /// Experts that the step's tokens chose, a bit each: [routed layers, expert_words]. The first kernel clears them, the last counts them.
  uint32_t* chosen_experts;
  int32_t expert_words;
  int32_t routed_layers;
  int32_t* num_tokens;  ///< of the step, without padding
  // Page-locked host memory, two of each: step n uses index n % 2.
  const std::byte* staged[2];
  unsigned long long* host_stamps[2];  ///< the step's end, then the stamps by index
  std::byte* host_results[2];
  int32_t* host_experts[2];  ///< [routed layers] number of experts that were chosen
};

/// The memory through which steps get their inputs and give their results, so that a captured graph serves
/// every step: fixed device arrays, and two places in page-locked host memory that steps use in turn. The
/// step's first kernel reads its place and writes the device arrays. Its last kernel writes results and stamps
/// to its place. Both find the place by a step counter in device memory.
class StepMemory {
 public:
  explicit StepMemory(const StepLimits& limits);

  /// Writes the inputs of a step (host memory) to place `slot` (step number modulo 2). `placed`: one for each
  /// row, from SamplingTables::bring().
  SampleMode stage(size_t slot, const ForwardBatch& host, std::span<const SamplingRow> rows,
                   std::span<const PlacedRow> placed);
  /// Brings `rows` to the device for step `slot`, which was staged without rows; in stream order, behind the step's launches so far.
  SampleMode bring_rows(cudaStream_t stream, size_t slot, std::span<const SamplingRow> rows,
                        std::span<const PlacedRow> placed);
  /// The batch as ops see it.
  ForwardBatch device_batch(const ForwardBatch& host, const LaunchSizes& sizes) const;

  /// The step's first kernel. It fills entries of the arrays past the staged batch with harmless values: slot
  /// -1, context 0, no slot of states.
  void launch_inputs(Launch& launch, const LaunchSizes& sizes) const;
  /// The step's last kernel: it brings `num_stamps` stamps, its own begin included, and counts experts chosen in `num_routed` layers.
  void launch_results(Launch& launch, int32_t num_stamps, int32_t num_rows, int32_t num_routed) const;

  /// Where stamp `index` of a step goes. Throws Error if there is no room, for steps with more than StepLimits::max_stamps ops.
  unsigned long long* stamp(int32_t index) const;
  /// Where the choices of routed layer `index` of a step are noted; nowhere if there is no room.
  ChosenExperts chosen_experts(int32_t index) const;
  const std::byte* sampling() const { return pointers_.sampling; }
  const int32_t* previous_tokens() const { return pointers_.previous_tokens; }
  int32_t* tokens() const { return pointers_.tokens; }
  std::byte* results() const { return pointers_.results; }

  uint64_t end_ns(size_t slot) const { return pointers_.host_stamps[slot][0]; }
  uint64_t stamp_ns(size_t slot, int32_t index) const { return pointers_.host_stamps[slot][1 + index]; }
  int32_t experts_chosen(size_t slot, int32_t index) const { return pointers_.host_experts[slot][index]; }
  const std::byte* host_results(size_t slot) const { return pointers_.host_results[slot]; }

 private:
  void lay_out_staging();
  /// Begin, end and arrival of each op, and the end of the step.
  int32_t num_stamps() const { return 3 * limits_.max_stamps + 1; }
  /// Rows of the block table.
  size_t num_rows() const {
    return static_cast<size_t>(limits_.max_sequences) * (limits_.has_window_table ? 2 : 1);
  }
  std::byte* staging(size_t slot) const { return const_cast<std::byte*>(pointers_.staged[slot]); }

  StepLimits limits_;
  StagedOffsets offsets_{};
  size_t staged_bytes_ = 0;
  StepPointers pointers_{};
  DeviceBuffer device_;
  PinnedBuffer host_;
};

}  // namespace minfer::cuda
