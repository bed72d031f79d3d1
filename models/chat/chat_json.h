#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_template.h"

namespace minfer {

/// A JSON value as a template sees it; its texts, keys too, come from the request. Throws Error for values
/// nested more than 100 levels deep and for ints of more than 64 bits.
jinja::Value value_from_json(const nlohmann::ordered_json& json);

/// A list of messages, whose roles are read by make_role.
jinja::Value messages_from_json(const nlohmann::ordered_json& json);

/// {"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true}; every other key is
/// a variable of the template. Throws Error naming the field that has another type.
ChatInput chat_input_from_json(const nlohmann::ordered_json& json);
/// The same from text.
ChatInput parse_chat_input(std::string_view text);

}  // namespace minfer
