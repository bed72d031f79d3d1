#pragma once

#include <cstddef>
#include <cstdint>

/// The bytes that SampleOps::pack() writes and the sampling kernels read, and the results that they write and
/// unpack() reads. No pointers: offsets count from the beginning.
///
///   PackedHeader | PackedRow[num_rows] | PackedBias of all rows | PackedCount of all rows
namespace minfer::cuda {

struct PackedHeader {
  int32_t num_rows;
  int32_t unused;
};

/// A SamplingRow. Entries are where `packed + *_offset` says.
struct PackedRow {
  uint64_t seed;
  int64_t position;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  int32_t pending_row;  ///< -1 as well if the row has no penalties
  int32_t top_logprobs;
  int32_t num_biases;
  int32_t num_counts;  ///< 0 if the row has no penalties
  uint32_t biases_offset;
  uint32_t counts_offset;
  int32_t unused;
};

struct PackedBias {
  int32_t token;
  float bias;
};

struct PackedCount {
  int32_t token;
  int32_t count;  ///< 2 * output_count + in_prompt
};

inline constexpr int kMaxTopLogprobs = 20;  ///< the most that a request may ask for

struct TopLogprob {
  int32_t token;
  float logprob;
};

struct RowResult {
  int32_t token;    ///< -1: every logit was NaN or -inf
  int32_t num_top;  ///< -1: no logprobs
  float logprob;
  TopLogprob top[kMaxTopLogprobs];
};

static_assert(sizeof(PackedHeader) % 8 == 0 && sizeof(PackedRow) % 8 == 0);

}  // namespace minfer::cuda
