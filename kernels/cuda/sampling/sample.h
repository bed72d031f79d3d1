#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/sampling/sampling_tables.h"
#include "kernels/op_args.h"
#include "kernels/sampling.h"

namespace minfer::cuda {

/// The kernels that a step's rows need. Part of a graph's key, since a graph holds a fixed list of kernels.
struct SampleMode {
  bool greedy_only = true;  ///< every row has temperature 0 and neither mask, bias nor penalty
  bool logprobs = false;    ///< some row wants logprobs
  bool operator==(const SampleMode&) const = default;
};

/// Draws tokens on the device, the same as the CPU backend except for sums that round differently at the 1e-8
/// level. Deterministic; a draw depends on its own row alone. Owned by the backend.
class SampleOps {
 public:
  /// Throws Error for vocabularies of more than 2^20 tokens.
  SampleOps(int32_t num_sms, const StepLimits& limits);

  /// Bytes that pack() writes for `num_rows` rows.
  static size_t packed_bytes(size_t num_rows);
  /// Writes rows as sample() reads them, without pointers, to `out`, which is 8-byte aligned like its copy on the
  /// device. `placed`: the result of SamplingTables::bring() for them. Tokens outside the vocabulary are ignored.
  /// Throws Error for a temperature or repetition penalty out of range and for more than 20 top logprobs.
  static SampleMode pack(std::span<const SamplingRow> rows, std::span<const PlacedRow> placed,
                         std::byte* out);
  /// Bytes of the results of `num_rows` rows.
  static size_t result_bytes(int32_t num_rows);

  /// `packed`, `previous_tokens` (drawn by the rows of the step before, for pending_row) and `results` are
  /// device memory; tokens[i] receives the token of row i. `logits` are those of rows [first_row, first_row +
  /// logits.rows), at most limits.logit_slice, f32; they stay as they are. Rows past the rows of `packed`
  /// (graph padding) get token 0 and no result. A row of nothing but NaN and -inf gets token 0 too, and its
  /// result is none.
  void sample(Launch& launch, const Tensor& logits, int32_t first_row, SampleMode mode,
              const std::byte* packed, const SamplingTablesView& tables, const int32_t* previous_tokens,
              int32_t* tokens, std::byte* results);
  /// Reads a host copy of the results.
  static void unpack(const std::byte* results, std::span<SampledToken> out);

 private:
  int32_t group_ = 1;           ///< thread blocks that share a row
  int64_t rows_at_a_time_ = 1;  ///< with many rows: clusters that run at a time
  DeviceBuffer storage_;        ///< for rows that do not fit into shared memory; else null
};

}  // namespace minfer::cuda
