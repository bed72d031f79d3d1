#pragma once

#include <string>
#include <string_view>

#include "server/api/fields/api_error.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/api_context.h"
#include "server/api/request/dialect.h"

namespace minfer {

// Bodies of the small endpoints, named as vLLM's. Requests in, responses out;
// ApiError for a wrong request. Fields that nobody knows go to `unknown`.

extern const Endpoint kOpenAiEndpoints[6];

/// POST /tokenize: {"model","prompt","add_special_tokens","return_token_strs"} or a chat's {"model",
/// "messages","tools","add_generation_prompt",...} -> {"count","max_model_len","tokens","token_strs"}.
/// The model may be left out: all names mean the same model.
std::string tokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);
/// POST /detokenize: {"model","tokens"} -> {"prompt"}.
std::string detokenize_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);
/// GET /tokenizer_info: {"bos_token","eos_token","vocab_size","model_max_length"}; the texts are null
/// if the vocabulary has no such token. With it, lm-evaluation-harness needs no tokeniser of its own.
std::string tokenizer_info_response(const ApiContext& context);
/// GET /v1/models.
std::string models_response(const ApiContext& context);
/// GET /v1/models/NAME; `path` is NAME as in the URL. 404 for a name that is not served.
std::string model_response(std::string_view path, const ApiContext& context);
/// GET /version.
std::string version_response();

}  // namespace minfer
