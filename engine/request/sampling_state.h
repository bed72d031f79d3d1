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

}  // namespace minfer
