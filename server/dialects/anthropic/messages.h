#pragma once

#include <string>
#include <string_view>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Anthropic's API. Events of a stream: message_start, ping, for each block content_block_start,
/// content_block_delta ..., content_block_stop, then message_delta and message_stop.
extern const Dialect kMessagesDialect;

/// A request to /v1/messages, translated for the chat template and the engine. Throws ApiError as parse_completion_request() does.
CompletionRequest parse_messages_request(std::string_view body, const ApiContext& context);

/// The answer of /v1/messages/count_tokens: {"input_tokens": N}, for the prompt that a request to /v1/messages would have.
std::string count_tokens_response(std::string_view body, const ApiContext& context, UnknownFields& unknown);

/// {"type":"error","error":{"type","message"}}: the type follows from the status.
std::string messages_error_json(const ApiError& error);

}  // namespace minfer
