#pragma once

#include <cstdint>
#include <optional>

#include "server/openai/openai_request.h"

namespace minfer {

/// How many bytes of JSON the answer to `request` may have if each of its choices has `max_tokens`: an
/// estimate from choices x tokens x (1 + alternatives) and from what tokens are usually like. The logprobs of
/// echoed prompts count as well.
int64_t estimate_answer_bytes(const CompletionRequest& request, int64_t max_tokens);

/// The most tokens that each choice may have: `wanted`, or where the client leaves that open, as many of
/// `otherwise` as fit into `max_bytes`. Throws ApiError (400) if what is wanted, or one token, does not fit.
/// The prompts and what is asked for of each token are known by then.
int64_t bound_max_tokens(const CompletionRequest& request, std::optional<int64_t> wanted, int64_t otherwise,
                         int64_t max_bytes);

}  // namespace minfer
