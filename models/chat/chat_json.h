#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_template.h"

namespace minfer {

/// {"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true}; every other key is
/// a variable of the template. Texts, including keys, count as the request's. Throws Error naming a field of the wrong
/// type, for values nested more than 100 levels deep and for ints of more than 64 bits.
ChatInput chat_input_from_json(const nlohmann::ordered_json& json);
/// The same from text.
ChatInput parse_chat_input(std::string_view text);

}  // namespace minfer
