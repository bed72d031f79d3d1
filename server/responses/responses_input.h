#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "server/openai/json_fields.h"

namespace minfer {

class ResponsesTools;

/// `input` behind the messages of `history`, for the template: a text, or items. What one turn of the assistant gave as several items
/// (reasoning, message, function_call) is one message. Tools that come up in items are added to `tools`. ApiError for items that are no
/// text: images, files, calls of the server's tools.
nlohmann::ordered_json read_responses_input(JsonFields& fields, nlohmann::ordered_json history,
                                            ResponsesTools& tools);

/// `messages` behind the instructions. A system message that they begin with goes on with those: templates know one.
nlohmann::ordered_json with_instructions(const std::string& instructions, nlohmann::ordered_json messages);

}  // namespace minfer
