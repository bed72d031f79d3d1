#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer.h"

namespace minfer {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// The text around a message in one of the chat formats that models are trained on. A turn is
/// `before_role` role `after_role` content `after_content`.
struct ChatFormat {
  std::string_view name;
  std::string_view marker;  ///< stands in the templates of models with this format
  std::string_view before_role;
  std::string_view after_role;
  std::string_view after_content;
};

/// The format that a model's chat template (Jinja text) has, told by its marker. Throws Error that lists the
/// known formats.
const ChatFormat& find_chat_format(std::string_view chat_template);

/// The prompt for the messages in order, ending where the assistant's answer begins.
std::vector<PromptPart> render_chat(const ChatFormat& format, std::span<const ChatMessage> messages);

}  // namespace minfer
