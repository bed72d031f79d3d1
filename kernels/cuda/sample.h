#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/owners.h"
#include "kernels/op_args.h"
#include "kernels/sampling.h"

namespace minfer::cuda {

/// Which kernels a step's rows need: part of a graph's key, since a graph holds a fixed list of kernels.
struct SampleMode {
  bool greedy_only = true;  ///< every row has temperature 0 and neither bias nor penalty
  bool logprobs = false;    ///< some row wants logprobs
  bool operator==(const SampleMode&) const = default;
};

/// Draws tokens on the device. Owned by the backend.
class SampleOps {
 public:
  SampleOps(int32_t num_sms, const StepLimits& limits);

  /// Bytes that pack() writes for these rows.
  static size_t packed_bytes(std::span<const SamplingRow> rows);
  /// Writes rows with their counts and biases as sample() reads them, pointer-free.
  static SampleMode pack(std::span<const SamplingRow> rows, std::byte* out);
  /// Bytes of the results of `num_rows` rows.
  static size_t result_bytes(int32_t num_rows);

  /// `packed`, `previous_tokens` (what the rows of the step before drew, for pending_row) and `results` are
  /// device memory; tokens[i] is what row i drew. Rows of `packed` past its own count (graph padding) are
  /// skipped.
  void sample(Launch& launch, const Tensor& logits, SampleMode mode, const std::byte* packed,
              const int32_t* previous_tokens, int32_t* tokens, std::byte* results);
  /// Reads a host copy of the results.
  static void unpack(const std::byte* results, std::span<SampledToken> out);
};

}  // namespace minfer::cuda
