#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// A body that becomes a request, with the fields of all dialects: model, sampling and streaming, where the dialect has
/// them. Throws ApiError for a wrong field.
struct RequestBody {
  RequestBody(const Dialect& dialect, std::string_view body, const ApiContext& context);
  /// Ends the reading of fields: reports those that nobody has asked for.
  void end_fields();

  const nlohmann::ordered_json root;
  UnknownFields unknown;
  JsonFields fields;
  JsonFields options;  ///< the fields of Dialect::options; nobody asks it for more if there is no such member
  CompletionRequest request;
};

// Groups of fields that several dialects have. Each function reads its members of `fields`.

/// `model`: a served name, perhaps with `tag` behind it (else 404), or any name where the server takes any; absent: the first
/// served name.
std::string read_model(JsonFields& fields, const ApiContext& context, std::string_view tag = {});

/// The `model` of a body (of an older client of Ollama: `name`), for a server with several models. Empty: there is none, or the body is
/// malformed, which its parser then says.
std::string named_model(std::string_view body);

/// max_tokens or, the same number under its newer name, max_completion_tokens.
std::optional<int64_t> read_max_tokens(JsonFields& fields, int64_t least);

/// n, priority, cache_salt, advice that has no effect here (service_tier, metadata, ...),
/// and fields that are refused because they would change the answer (audio, best_of, ...).
void read_common(JsonFields& fields, const ApiContext& context, CompletionRequest& request);

/// The stop strings of a field: a string or a list of them.
std::vector<std::string> read_stop_strings(JsonFields& fields, std::string_view name,
                                           const ApiLimits& limits);

/// The token ids of a list; `path` is its full name.
std::vector<TokenId> read_token_ids(const nlohmann::ordered_json& list, const std::string& path,
                                    int32_t vocab_size);

/// Throws context_length_exceeded if a text is too long however it is tokenised. Saves tokenising it, which may take seconds.
void check_text_length(std::string_view field, size_t bytes, const ApiContext& context);

/// The tokens of a prompt that is a text, or with a suffix those of gap_parts(). Throws ApiError (400) for `field` if there are none.
std::vector<TokenId> tokenise_text(const std::string& text, const std::string& suffix,
                                   const std::string& field, const ApiContext& context, bool add_special);

/// Sets max_tokens and min_tokens once the prompts are known. Throws context_length_exceeded if a prompt and the tokens asked
/// for (one, if none were asked for) do not fit. Nothing asked for: `otherwise`, or what the context leaves if that is less.
void settle_lengths(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> max_tokens,
                    int64_t min_tokens, int32_t otherwise);

/// The same for `most` tokens (at least one) as a bound, not a wish: clients send the same number whatever the context. If less is
/// left in a context of `window` tokens, the answer gets that, at least one token. No bound asked for: what is left.
void settle_bound(CompletionRequest& request, const ApiContext& context, std::optional<int64_t> most,
                  int64_t window = INT64_MAX);

/// An estimate of the bytes of JSON in the answer to `request` if each of its choices has `max_tokens`: from choices
/// x tokens x (1 + alternatives) and from the usual size of tokens. The logprobs of echoed prompts count as well.
int64_t estimate_answer_bytes(const CompletionRequest& request, int64_t max_tokens);

/// The prompt for a gap that the answer must fill, for models trained for it: prefix token,
/// `before`, suffix token, `behind`, middle token, each a part; special tokens within the
/// texts do not count. Throws unsupported() for `field` if the vocabulary has no such tokens.
std::vector<PromptPart> gap_parts(std::string before, std::string behind, const Tokenizer& tokenizer,
                                  std::string_view field);
/// The index of the suffix token's part: the model sees it behind the text in front of the gap.
inline constexpr size_t kGapSuffixPart = 2;

}  // namespace minfer
