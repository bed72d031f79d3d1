#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/chat/chat_template_source.h"
#include "models/decoder/weights/model_source.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/request/api_context.h"
#include "server/serving/engine/server_log.h"

namespace minfer {

/// ApiContext::render_chat over the template in `file`, or the model's own if `file`
/// is empty. A model whose template cannot be used still serves completions: the log
/// says so, and chat requests get the reason. Throws if `file` cannot be used.
std::function<RenderedChat(const nlohmann::ordered_json& variables)> make_chat_renderer(
    const std::string& file, const ModelSource& model, const Tokenizer& tokenizer, ServerLog& log);

/// The text of the template in `file`, or of the model's own with its template for tools. Empty: the model has none.
std::string chat_template_text(const std::string& file, const ModelSource& model);

/// The format of tool calls and reasoning in answers: a format's name, "auto" (as the chat template shows) or "none".
struct AnswerFormatOptions {
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
};

/// Sets how chat answers are read. `chat_template`: the template's text, for "auto"; empty: the model has
/// none. Throws Error for an unknown name, and for a format that has only thoughts if calls are to be read.
void set_answer_format(ApiContext& context, const AnswerFormatOptions& options,
                       std::string_view chat_template, ServerLog& log);

}  // namespace minfer
