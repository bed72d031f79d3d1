#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

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

/// system and messages for the template: blocks of text joined by line ends, tool_use as calls, tool_result as messages
/// of the role "tool", thinking as reasoning_content. Neighbouring user messages are joined, as Anthropic's server does.
nlohmann::ordered_json read_messages_chat(JsonFields& fields);

/// tools for the template. Tools that Anthropic's server runs itself, or whose
/// schemas only its models know, cannot be offered: they count as unknown fields.
nlohmann::ordered_json read_messages_tools(const nlohmann::ordered_json& list, int32_t max_tools,
                                           UnknownFields& unknown);

/// {"type":"error","error":{"type","message"}}: the type follows from the status.
std::string messages_error_json(const ApiError& error);

}  // namespace minfer
