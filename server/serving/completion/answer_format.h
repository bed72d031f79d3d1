#pragma once

#include <string>
#include <string_view>

#include "server/openai/api_context.h"
#include "server/serving/server_log.h"

namespace minfer {

/// In which format models write tool calls and reasoning: the name of one, "auto" (what the chat template shows) or "none".
struct AnswerFormatOptions {
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
};

/// Has the answers of chats read so. `chat_template`: the template's text, for "auto"; empty: the model has none. Throws Error for a name
/// that nobody knows, and for one of thoughts alone where calls are to be read.
void set_answer_format(ApiContext& context, const AnswerFormatOptions& options,
                       std::string_view chat_template, ServerLog& log);

}  // namespace minfer
