#include "engine/request/prompt_scores.h"

#include <limits>
#include <utility>

namespace minfer {
namespace {

/// Above any logit, and finite: infinity would make NaN of a logit of -inf.
constexpr float kLift = 1e30f;

}  // namespace

PromptScores::PromptScores(std::span<const TokenId> prompt, int32_t num_top) : num_top_(num_top) {
  if (num_top < 0 || prompt.empty()) return;
  for (const TokenId token : prompt.subspan(1))
    lifts_.push_back({token, kLift});
  scores_.resize(lifts_.size());
}

SamplingRow PromptScores::row(int32_t position) const {
  SamplingRow row;
  row.temperature = 0.0f;
  row.position = position + 1;
  row.top_logprobs = num_top_;
  row.biases = std::span(lifts_).subspan(static_cast<size_t>(position), 1);
  return row;
}

void PromptScores::accept(int32_t position, SampledToken scored) {
  const TokenId token = lifts_[static_cast<size_t>(position)].token;
  if (scored.token != token) {  // its logit is -inf, which nothing lifts
    scored.token = token;
    scored.logprob = -std::numeric_limits<float>::infinity();
  }
  scores_[static_cast<size_t>(position)] = std::move(scored);
}

std::vector<SampledToken> PromptScores::take() {
  return std::exchange(scores_, {});
}

}  // namespace minfer
