#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/openai/json_fields.h"
#include "server/openai/openai_request.h"

namespace minfer {

/// A conversation as the chat template sees it, checked but not rendered.
struct ChatPrompt {
  nlohmann::ordered_json variables;  ///< see ApiContext::render_chat
  std::string continued_text;        ///< the last message's, if the answer goes on with it; else empty
  bool add_special = false;          ///< BOS and EOS beside those that the template writes
};

/// messages, tools, tool_choice, add_generation_prompt, continue_final_message, add_special_tokens,
/// chat_template_kwargs.
ChatPrompt read_chat_prompt(JsonFields& fields, const ApiContext& context);

/// Renders and tokenises. What the template refuses becomes an ApiError (400).
std::vector<TokenId> tokenise_chat(const ChatPrompt& prompt, const ApiContext& context);

/// The messages for the template. Text parts are joined by line ends; "developer" becomes "system", which
/// is what templates know; arguments of tool calls that are JSON objects in a string become objects.
nlohmann::ordered_json read_messages(const nlohmann::ordered_json& list, UnknownFields& unknown);

/// The tools for the template: checked, and as they came but for what is ignored, which the model must not see
/// either (unknown members, `strict`).
nlohmann::ordered_json read_tools(const nlohmann::ordered_json& list, int32_t max_tools,
                                  UnknownFields& unknown);

}  // namespace minfer
