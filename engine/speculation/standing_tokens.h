#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/request/live_request.h"

namespace minfer {

/// The fate of a sequence's drawn tokens, beside the tokens that stand.
struct StandingTokens {
  bool ends = false;      ///< the last one ends the generation
  bool is_stuck = false;  ///< no token can follow the last one
};

/// Sets `tokens` to the tokens of `drawn` that stand: at least the first, which must be drawn. `drawn[i]` follows if the drafts
/// before it are right, so it stands while each of these equals the token drawn in its place. Nothing stands behind a token
/// that ends the generation. `acceptance`: instead, a draft is right with this chance
/// (SpeculationOptions::synthetic_acceptance), the same each time for a position of the sequence, and replaces the drawn token.
StandingTokens standing_tokens(const LiveRequest& request, std::span<const SampledToken> drawn,
                               std::optional<double> acceptance, std::vector<TokenId>& tokens);

}  // namespace minfer
