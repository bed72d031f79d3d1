#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request/request.h"
#include "kernels/sampling.h"

namespace minfer {

/// The state that sampling keeps for one request from token to token: its parameters, the tokens seen so far
/// (only where a penalty asks for them) and the tokens forbidden until min_tokens. A token costs O(1).
class SamplingState {
 public:
  /// `ending_tokens` end the generation; min_tokens forbids them. `seed`: the request's, or a seed that the
  /// engine drew. Throws Error if there are more than kMaxRowBiases biases and forbidden tokens together.
  SamplingState(const SamplingParams& params, uint64_t seed, std::span<const TokenId> prompt,
                std::span<const TokenId> ending_tokens);

  /// The row that draws the token at `position` of the sequence when `num_output`
  /// tokens have been generated. The spans in it stay valid until the next accept().
  SamplingRow row(int64_t position, int32_t num_output) const;
  void accept(TokenId token);

 private:
  TokenCount& count_of(TokenId token);

  SamplingRow row_;
  int32_t min_tokens_;
  bool has_penalties_;
  std::vector<TokenCount> counts_;
  std::unordered_map<TokenId, size_t> count_index_;
  std::vector<LogitBias> biases_;  ///< the request's, then those that hold until min_tokens
  size_t num_lasting_biases_;
};

/// Finds the logprobs of given tokens: a request's own prompt, or text that its grammar forces.
/// Each token is scored by a row of logits from which only that token can be drawn: a greedy row
/// with a bias that lifts the token above all others. Logprobs are of the logits before biases.
class GivenScores {
 public:
  /// Scores all `tokens` but the first, which is at `position` of its sequence. `num_top` -1: no scores are wanted, and nothing is kept.
  GivenScores(std::span<const TokenId> tokens, int32_t position, int32_t num_top);

  /// The row that scores the token at position + 1 from the logits at `position`. The span in it is valid as long as this object.
  SamplingRow row(int32_t position) const;
  /// Corrects the row's result where the token's logit is -inf, which no bias lifts.
  void correct(int32_t position, SampledToken& scored) const;

 private:
  const LogitBias& lift(int32_t position) const { return lifts_[static_cast<size_t>(position - first_)]; }

  int32_t first_;
  int32_t num_top_;
  std::vector<LogitBias> lifts_;  ///< the token behind each position
};

}  // namespace minfer
