#include "engine/speculation/standing_tokens.h"

namespace minfer {

StandingTokens standing_tokens(const LiveRequest& request, std::span<const SampledToken> drawn,
                               std::vector<TokenId>& tokens) {
  tokens.clear();
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (!drawn[i].is_drawn()) return {.is_stuck = true};
    const TokenId token = drawn[i].token;
    tokens.push_back(token);
    if (request.ends_with(token)) return {.ends = true};
    if (i + 1 < drawn.size() && request.drafts[i] != token) break;
  }
  return {};
}

}  // namespace minfer
