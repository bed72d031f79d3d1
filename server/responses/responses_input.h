#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "server/openai/json_fields.h"

namespace minfer {

/// `input` behind the messages of `history`, for the template: a text, or items. What one turn of the assistant gave as several items
/// (reasoning, message, function_call) is one message. ApiError for items that are no text: images, files, calls of the server's tools.
nlohmann::ordered_json read_responses_input(JsonFields& fields, nlohmann::ordered_json history);

/// `messages` behind the instructions. A system message that they begin with goes on with those: templates know one.
nlohmann::ordered_json with_instructions(const std::string& instructions, nlohmann::ordered_json messages);

struct ResponsesTools {
  nlohmann::ordered_json shown;  ///< for the template
  nlohmann::ordered_json given;  ///< the same as they came, for the response
};
/// Functions, in their flat form. Tools that the server would have to run cannot be offered: they count as unknown fields.
ResponsesTools read_responses_tools(const nlohmann::ordered_json& list, int32_t max_tools,
                                    UnknownFields& unknown);

}  // namespace minfer
