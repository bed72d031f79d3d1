#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "server/openai/json_fields.h"
#include "server/openai/openai_request.h"

namespace minfer {

// Groups of fields that both kinds of completion request share. Each reads its members of `fields`.

/// `model`: one of those served (404 otherwise), or any where the server takes any; without it, the first of those served.
std::string read_model(JsonFields& fields, const ApiContext& context);

/// max_tokens or, the same number under its newer name, max_completion_tokens.
std::optional<int64_t> read_max_tokens(JsonFields& fields, int64_t least);

/// temperature, top_p, top_k, min_p, the penalties, logit_bias, seed, stop, stop_token_ids,
/// include_stop_str_in_output, ignore_eos, skip_special_tokens.
void read_sampling(JsonFields& fields, const ApiContext& context, SamplingParams& sampling);

/// stream, stream_options, stream_interval.
void read_streaming(JsonFields& fields, const ApiContext& context, CompletionRequest& request);

/// n, priority, cache_salt, advice that has no effect here (service_tier, metadata, ...), and what is
/// refused because it would change the answer (audio, best_of, ...).
void read_common(JsonFields& fields, const ApiContext& context, CompletionRequest& request);

/// The stop strings of a field: a string or a list of them.
std::vector<std::string> read_stop_strings(JsonFields& fields, std::string_view name,
                                           const ApiLimits& limits);

/// What the request's API calls the prompt.
std::string_view prompt_field(const CompletionRequest& request);

/// The token ids of a list; `path` is its full name.
std::vector<TokenId> read_token_ids(const nlohmann::ordered_json& list, const std::string& path,
                                    int32_t vocab_size);

/// Throws context_length_exceeded for a text that is too long however it is tokenised, which may take
/// seconds.
void check_text_length(std::string_view field, size_t bytes, const ApiContext& context);

/// Sets max_tokens and min_tokens once the prompts are known. Throws context_length_exceeded if a prompt and as
/// many tokens as were asked for (one, if nothing was) do not fit. Nothing asked for: `otherwise`, or what the context
/// leaves if that is less.
void settle_lengths(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> max_tokens,
                    int64_t min_tokens, int32_t otherwise);

}  // namespace minfer
