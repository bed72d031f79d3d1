#include "engine/request/given_scores.h"

#include <limits>

namespace minfer {
namespace {

/// Above any logit, and finite: infinity would make NaN of a logit of -inf.
constexpr float kLift = 1e30f;

}  // namespace

GivenScores::GivenScores(std::span<const TokenId> tokens, int32_t position, int32_t num_top)
    : first_(position), num_top_(num_top) {
  if (num_top < 0 || tokens.empty()) return;
  for (const TokenId token : tokens.subspan(1))
    lifts_.push_back({token, kLift});
}

SamplingRow GivenScores::row(int32_t position) const {
  SamplingRow row;
  row.temperature = 0.0f;
  row.position = position + 1;
  row.top_logprobs = num_top_;
  row.biases = {&lift(position), 1};
  return row;
}

void GivenScores::correct(int32_t position, SampledToken& scored) const {
  if (scored.token == lift(position).token) return;
  scored.token = lift(position).token;
  scored.logprob = -std::numeric_limits<float>::infinity();
}

}  // namespace minfer
