#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/sampling/sample_packed.h"
#include "kernels/cuda/sampling/sampling_slots.h"
#include "kernels/op_args.h"
#include "kernels/sampling.h"

namespace minfer::cuda {

/// The tables in which the sampling kernels find counts and biases of a slot. Device memory.
struct SamplingTablesView {
  uint32_t* counts = nullptr;          ///< [slots, stride]: kInPrompt and kOneOutput, added up
  int64_t stride = 0;                  ///< the vocabulary, rounded up; elements behind it are 0
  const PackedBias* biases = nullptr;  ///< [slots, kMaxRowBiases]
  const uint32_t* masks = nullptr;     ///< [max_sequences, mask_words] of the step, bit t % 32 of word t / 32
  int64_t mask_words = 0;              ///< in a mask: the vocabulary / 32, rounded up
};

/// A row's data on the device when its step begins.
struct PlacedRow {
  int32_t slot = -1;  ///< -1: nothing
  std::span<const int32_t> new_tokens =
      {};             ///< generated, at most kMaxNewTokens: the step itself counts them
  int32_t mask = -1;  ///< index among the step's masks; -1: none
};

/// The counted tokens that each sequence has seen, and its biases, in device memory. There is a slot for every sequence that runs, so no
/// step can lack room for them, whatever its requests ask for. Allocated at the start:
///
///   counts   slots x vocabulary x 4 bytes, as many as a step's logits take: 131 MB for 256 sequences of Llama 3's vocabulary
///   biases   slots x kMaxRowBiases x 8 bytes: 8 MB for 256 sequences
///   staging  2 x 256 KiB of page-locked memory
///   masks    max_sequences x vocabulary / 8 bytes, and twice as many of page-locked memory: 4 MB for 256 sequences
///
/// Only new data is brought. A sequence that decodes brings one token in its packed row, the one that the host has learnt since its
/// last step. A sequence that enters, or comes back after a preemption to a new slot, has its whole history counted by kernels in
/// front of the step. They read it from the staging memory piece by piece; only a history larger than the staging memory makes the
/// host wait. Tokens that are drawn and then dropped (a stop found late, a preemption) never enter a count, since the host does not
/// send them.
///
/// Masks belong to one step. Masks of the next step are copied behind the kernels of this one, so two steps under way share the
/// device's memory, but not the staging. Rows with the same mask have one copy. A step without masks copies nothing.
///
/// Owned by the backend; one thread. All work is in the order of the stream.
class SamplingTables {
 public:
  explicit SamplingTables(const StepLimits& limits);

  /// Brings what the rows of the next step need and the device lacks. Returns one value a row, valid until the
  /// next call and as long as the rows' histories. Not allowed while the stream is being captured. Throws Error
  /// for a mask of another vocabulary and for more masks than sequences.
  std::span<const PlacedRow> bring(Launch launch, std::span<const SamplingRow> rows);
  SamplingTablesView view() const {
    return {counts_.as<uint32_t>(), stride_, biases_.as<PackedBias>(), masks_.as<uint32_t>(), mask_words_};
  }

 private:
  static constexpr size_t kPieceBytes = size_t{256} << 10;

  struct Piece {
    PinnedBuffer memory;
    Event is_free;
  };

  std::span<const int32_t> bring_counts(Launch& launch, const SamplingRow& row,
                                        const SamplingSlots::Placement& placement);
  int32_t place_mask(const SamplingRow& row);
  void bring_masks(cudaStream_t stream);
  void bring_biases(cudaStream_t stream, const SamplingRow& row, int32_t slot);
  std::byte* stage(cudaStream_t stream, const void* data, size_t bytes);

  int64_t vocabulary_;
  int64_t stride_;
  SamplingSlots slots_;
  std::vector<PlacedRow> placed_;
  DeviceBuffer counts_;
  DeviceBuffer biases_;
  std::array<Piece, 2> pieces_;
  size_t piece_ = 0;  ///< the one being filled
  size_t used_ = 0;   ///< bytes of it

  int64_t mask_words_;
  int32_t max_masks_;
  DeviceBuffer masks_;
  std::array<Piece, 2> staged_masks_;                        ///< steps with masks use them in turn
  size_t staged_mask_ = 0;                                   ///< the one of the current step
  std::unordered_map<const uint32_t*, int32_t> mask_index_;  ///< by the address of its first word, this step
};

}  // namespace minfer::cuda
