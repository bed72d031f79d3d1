#include "engine/speculation/standing_tokens.h"

#include "kernels/base/random.h"

namespace minfer {

StandingTokens standing_tokens(const LiveRequest& request, std::span<const SampledToken> drawn,
                               std::optional<double> acceptance, std::vector<TokenId>& tokens) {
  constexpr uint64_t kSeed = 1;
  tokens.clear();
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (!drawn[i].is_drawn()) return {.is_stuck = true};
    TokenId token = drawn[i].token;
    bool goes_on = i + 1 < drawn.size();
    if (goes_on && acceptance) {
      goes_on = uniform(kSeed, request.size() + static_cast<int64_t>(i)) < *acceptance;
      if (goes_on) token = request.drafts[i];
    } else if (goes_on) {
      goes_on = request.drafts[i] == token;
    }
    tokens.push_back(token);
    if (request.ends_with(token)) return {.ends = true};
    if (!goes_on) break;
  }
  return {};
}

}  // namespace minfer
