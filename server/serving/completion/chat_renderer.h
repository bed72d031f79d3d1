#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"
#include "models/chat/chat_template_source.h"
#include "server/api/request/api_context.h"
#include "server/serving/engine/server_log.h"

namespace minfer {

/// ApiContext::render_chat over the template in `file`, or the model's own if that is empty. A model whose
/// template cannot be used still serves completions: the log says so, and chat requests get the reason. A
/// `file` that cannot be used throws.
std::function<RenderedChat(const nlohmann::ordered_json& variables)> make_chat_renderer(
    const std::string& file, const Engine& engine, ServerLog& log);

/// The text of that template, with the one that a model has for tools. Empty: the model has none of its own.
std::string chat_template_text(const std::string& file, const Engine& engine);

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
