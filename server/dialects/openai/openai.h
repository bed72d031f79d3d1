#pragma once

#include <string>
#include <string_view>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

extern const Dialect kCompletionsDialect;  ///< POST /v1/completions
extern const Dialect kChatDialect;         ///< POST /v1/chat/completions

/// Fields, ranges and fields accepted without effect: openai_request.cpp, and for all dialects server/api/request.
CompletionRequest parse_completion_request(std::string_view body, const ApiContext& context);
CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context);

/// The small endpoints, named as vLLM's: these functions and GET /version.
extern const Endpoint kOpenAiEndpoints[6];

/// POST /tokenize: {"model","prompt","add_special_tokens","return_token_strs"} or a chat's {"model",
/// "messages","tools","add_generation_prompt",...} -> {"count","max_model_len","tokens","token_strs"}.
/// The model may be left out: all names mean the same model.
std::string tokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);
/// POST /detokenize: {"model","tokens"} -> {"prompt"}.
std::string detokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);
/// GET /tokenizer_info: {"bos_token","eos_token","vocab_size","model_max_length"}; the texts are null
/// if the vocabulary has no such token. With it, lm-evaluation-harness needs no tokeniser of its own.
std::string tokenizer_info_response(std::string_view, const ApiContext& context, UnknownFields&);
/// GET /v1/models.
std::string models_response(std::string_view, const ApiContext& context, UnknownFields&);
/// GET /v1/models/NAME; `path` is NAME as in the URL. 404 for a name that is not served.
std::string model_response(std::string_view path, const ApiContext& context, UnknownFields&);

}  // namespace minfer
