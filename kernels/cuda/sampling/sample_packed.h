#pragma once

#include <cstdint>

#include "kernels/sampling.h"

/// The bytes that SampleOps::pack() writes and the sampling kernels read, and the results that these write and
/// unpack() reads.
///
///   PackedHeader | PackedRow[num_rows]
namespace minfer::cuda {

struct PackedHeader {
  int32_t num_rows;
  int32_t unused;
};

struct PackedBias {
  int32_t token;
  float bias;
};

/// Tokens that a row adds to the counts of its slot. If there are more, kernels in front of the step count them.
inline constexpr int32_t kMaxNewTokens = 3;

/// A SamplingRow; counts and biases that outlive the step are in the SamplingTables.
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
  int32_t slot;          ///< -1: none
  int32_t is_penalised;  ///< 1: by the counts of the slot
  int32_t num_biases;    ///< up to kMaxLooseBiases: in `biases`; more: the first ones of the slot
  PackedBias biases[kMaxLooseBiases];
  int32_t mask;  ///< index of the allowed tokens among the step's masks; -1: all are allowed
  int32_t num_new;
  int32_t new_tokens[kMaxNewTokens];  ///< generated since the slot's counts
};

/// Terms of an element of the table of counts: kInPrompt if the token is in the prompt, and kOneOutput for each time it was generated.
inline constexpr uint32_t kInPrompt = 1;
inline constexpr uint32_t kOneOutput = 2;

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
