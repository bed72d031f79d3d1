#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minfer {

/// A token whose logit is changed before sampling.
struct LogitBias {
  int32_t token;
  float bias;
};

/// A token seen before in a sequence, for the penalties.
struct TokenCount {
  int32_t token;
  int32_t output_count;  ///< times generated; presence and frequency penalties apply if > 0
  bool in_prompt;        ///< repetition penalty applies to prompt tokens as well
};

/// How one row of logits becomes a token. The order of steps: allowed, logit_bias, penalties (repetition, then
/// presence and frequency), temperature, top_k, top_p, min_p, draw. Neutral values switch a step off.
///
/// The draw uses uniform(seed, position, attempt) and weights w (kernels/token_weight.h). All backends draw alike, but for rounded sums:
/// - with top_k: among the tokens that top_k, top_p and min_p leave, in the order of ids, the draw takes the token at which the running
///   sum of w passes the random share of their mass;
/// - without: it tries tokens. They are ordered by w, largest first, lower id first among equals. The first try draws from all tokens as
///   above. A token is kept if the mass before it is below top_p of all and its w is at least min_p of the largest; if not, the next try
///   draws from the tokens before it, with the next random number. So the kept set is never computed, only whether a token belongs to it
///   (rejection: the drawn tokens have the distribution of the kept set).
///
/// `temperature` 0 is greedy. A token that is not allowed is -inf, whatever later steps add.
///
/// A logit that is NaN counts as -inf, and so does one that a bias makes NaN: neither is ever drawn, whatever the others are. If a
/// row's logits, mask or biases leave nothing above -inf, it draws no token (SampledToken::is_drawn()); the other rows of the step
/// are drawn as if this row were not there.
///
/// A backend whose memory is not the host's keeps counts and biases in its own memory, by `state`, and copies only what is new.
struct SamplingRow {
  float temperature = 1.0f;
  int32_t top_k = 0;  ///< 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;          ///< with `position`, the only source of the draw's random number
  int32_t pending_row = -1;   ///< >= 0: the sequence's newest token is what this row of the step before drew;
                              ///< the host does not know it yet, so `counts` lack it (Backend::launch_step)
  int64_t position = 0;       ///< position of the token that is drawn in its sequence
  int32_t top_logprobs = -1;  ///< -1: no logprobs; n >= 0: the drawn token's and the n largest
  /// -inf forbids a token (min_tokens forbids stop tokens this way). At most kMaxRowBiases.
  std::span<const LogitBias> biases;
  /// The tokens that may be drawn: bit t % 32 of word t / 32, [ceil(vocabulary / 32)]. Empty: all. Only for a backend
  /// whose BackendInfo::takes_masks is true.
  std::span<const uint32_t> allowed;

  /// Names the sequence that has these counts and biases: no other sequence uses it, and all rows of this one do. Later rows
  /// have the biases of its first row, or only the first n of them. 0: no sequence; such a row has no penalties and at most
  /// kMaxLooseBiases biases.
  uint64_t state = 0;
  std::span<const TokenCount> counts;
  /// The tokens that `counts` counts, if the row has penalties: `num_prompt` tokens of the prompt, then those generated. The
  /// history of a state only grows. Only the call that brings the row reads it.
  std::span<const int32_t> history;
  int32_t num_prompt = 0;
};

/// The most biases of a row: they bound the memory that a device keeps for them.
inline constexpr int32_t kMaxRowBiases = 4096;
inline constexpr int32_t kMaxLooseBiases = 4;

inline bool has_penalties(const SamplingRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f;
}

struct TokenLogprob {
  int32_t token;
  float logprob;
};

/// The result of sampling a row. Logprobs are of the raw model distribution (before mask, bias, penalties
/// and temperature), as vLLM reports them by default.
struct SampledToken {
  int32_t token = -1;             ///< -1: no token could be drawn
  float logprob = 0.0f;           ///< valid if top_logprobs >= 0
  std::vector<TokenLogprob> top;  ///< descending

  bool is_drawn() const { return token >= 0; }
};

}  // namespace minfer
