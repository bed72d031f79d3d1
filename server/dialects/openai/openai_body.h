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

/// The members before the choices: id, object, created, model, system_fingerprint and, if the client named one, service_tier.
void write_head(JsonText& json, const CompletionRequest& request, const ResponseIdentity& identity,
                std::string_view system_fingerprint, std::string_view object);

/// {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details":{"cached_tokens"}} and, where reasoning is looked for,
/// "completion_tokens_details":{"reasoning_tokens"}.
void write_usage(JsonText& json, const Usage& usage);

/// The members `,"finish_reason":...,"stop_reason":...` of the choice that `output`
/// ends. stop_reason is vLLM's: the stop string or the stop token's id that ended it,
/// null for the model's own end and for length. `end`: the end of a parsed choice.
std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output, const std::optional<AnswerEnd>& end = {});

/// Null: the request's answers are not parsed.
std::unique_ptr<ParsedChoice> make_parsed_choice(const CompletionRequest& request, const ApiContext& context);

/// The members of the delta in a chat's stream for `delta`, which `parts` has
/// taken. Empty: no members. `input` reads the inputs of calls of custom tools.
std::string delta_json(const CompletionRequest& request, const ChatDelta& delta, const AnswerParts& parts,
                       CustomInput& input);
/// The same for the text that `input` still holds when the answer ends within such a call.
std::string rest_json(const CompletionRequest& request, const AnswerParts& parts, CustomInput& input);

/// {"role","content","refusal","reasoning_content","tool_calls"}, the last two only if there are some.
void write_message(JsonText& json, const CompletionRequest& request, const AnswerParts& parts);

/// The first offsets of a completion's choice. An echoed prompt's text ends where its tokens'
/// text ends, but may begin behind the tokens' begin (the space in front of the first word, BOS).
TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice);

/// The tokens of an output that a response shows, with their logprobs. If the prompt
/// is echoed, the prompt's tokens come first; the very first has a logprob of NaN.
std::vector<SampledToken> shown_tokens(const CompletionRequest& request, int32_t choice,
                                       RequestOutput output);

}  // namespace minfer
