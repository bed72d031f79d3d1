#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_template.h"

namespace minfer {

/// A JSON value as a template sees it. Its texts, including keys, count as the request's. Throws Error for values
/// nested more than 100 levels deep and for ints of more than 64 bits.
jinja::Value value_from_json(const nlohmann::ordered_json& json);

/// A list of messages; make_role() reads their roles.
jinja::Value messages_from_json(const nlohmann::ordered_json& json);

/// {"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true}; every other key is
/// a variable of the template. Throws Error naming a field of the wrong type.
ChatInput chat_input_from_json(const nlohmann::ordered_json& json);
/// The same from text.
ChatInput parse_chat_input(std::string_view text);

}  // namespace minfer
