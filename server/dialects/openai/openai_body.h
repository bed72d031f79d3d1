#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "models/chat/answer/custom_input.h"
#include "profiling/json/json_text.h"
#include "server/api/answer/answer_reader.h"
#include "server/dialects/openai/openai_response.h"

namespace minfer {

// Parts that streamed and whole responses share.

/// The members before the choices: id, object, created, model, system_fingerprint and, where the client named one, service_tier.
void write_head(JsonText& json, const CompletionRequest& request, const ResponseIdentity& identity,
                std::string_view system_fingerprint, std::string_view object);

/// {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details":{"cached_tokens"}} and, where reasoning is looked for,
/// "completion_tokens_details":{"reasoning_tokens"}.
void write_usage(JsonText& json, const Usage& usage);

/// The members `,"finish_reason":...,"stop_reason":...` of the choice that `output` ends. The latter is
/// vLLM's: the stop string or the stop token's id that ended it, null for the model's own end and for length.
/// `end`: of a choice that is parsed.
std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output, const std::optional<AnswerEnd>& end = {});

/// Null: the request's answers are not parsed.
std::unique_ptr<ParsedChoice> make_parsed_choice(const CompletionRequest& request, const ApiContext& context);

/// The members of the delta that a chat's stream has for `delta`, which `parts` has taken. Empty: it has none. `input` reads what calls of
/// custom tools bring.
std::string delta_json(const CompletionRequest& request, const ChatDelta& delta, const AnswerParts& parts,
                       CustomInput& input);
/// The same of what `input` holds when the answer ends within such a call.
std::string rest_json(const CompletionRequest& request, const AnswerParts& parts, CustomInput& input);

/// {"role","content","refusal","reasoning_content","tool_calls"}, the latter two where there are some.
void write_message(JsonText& json, const CompletionRequest& request, const AnswerParts& parts);

/// Where the offsets of a completion's choice begin. An echoed prompt's text ends where its tokens' does, but
/// may begin behind it (the space in front of the first word, BOS).
TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice);

/// The tokens that a response shows of an output, with their logprobs: where a prompt is echoed, first those
/// of the prompt, of which the very first has a logprob of NaN.
std::vector<SampledToken> shown_tokens(const CompletionRequest& request, int32_t choice,
                                       RequestOutput output);

}  // namespace minfer
