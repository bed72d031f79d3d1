#pragma once

#include <string>
#include <string_view>

#include "server/openai/api_context.h"
#include "server/openai/openai_request.h"
#include "server/openai/unknown_fields.h"

namespace minfer {

/// A request to /v1/messages, translated into what the chat template and the engine need. ApiError as in
/// parse_completion_request().
CompletionRequest parse_messages_request(std::string_view body, const ApiContext& context);

/// The answer of /v1/messages/count_tokens: {"input_tokens": N}, of the prompt as a request to /v1/messages would have it.
std::string count_tokens_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);

}  // namespace minfer
