#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/openai/json_fields.h"
#include "server/openai/openai_chat.h"

namespace minfer {

/// system and messages for the template: blocks of text joined by line ends, tool_use as calls, tool_result as messages of the role
/// "tool", thinking as reasoning_content. Neighbouring messages of users are one, as with Anthropic's server.
nlohmann::ordered_json read_messages_chat(JsonFields& fields);

/// tools for the template. Those that Anthropic's server runs itself, or whose schemas only its models know, cannot be offered: they count
/// as unknown fields.
nlohmann::ordered_json read_messages_tools(const nlohmann::ordered_json& list, int32_t max_tools,
                                           UnknownFields& unknown);

}  // namespace minfer
