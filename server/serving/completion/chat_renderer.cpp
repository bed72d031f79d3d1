#include "server/serving/completion/chat_renderer.h"

#include <fstream>
#include <iterator>
#include <memory>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"

namespace minfer {
namespace {

const ChatFormat* choose_format(std::string_view option, const std::string& wanted,
                                const ChatFormat* detected) {
  if (wanted == "none") return nullptr;
  if (wanted == "auto") return detected;
  const ChatFormat* format = find_chat_format(wanted);
  if (format == nullptr)
    fail("{}: {}, expected auto, none or one of {}", option, wanted, fmt::join(chat_format_names(), ", "));
  return format;
}

std::string_view name_or_none(const ChatFormat* format) {
  return format == nullptr ? "none" : name(*format);
}

}  // namespace

std::function<RenderedChat(const nlohmann::ordered_json& variables)> make_chat_renderer(
    const std::string& file, const ModelSource& model, const Tokenizer& tokenizer, ServerLog& log) {
  const ChatTemplateSource of_model = model.chat_template();
  std::shared_ptr<const ChatTemplate> chat_template;
  try {
    chat_template = std::make_shared<const ChatTemplate>(open_chat_template(file, of_model, tokenizer));
  } catch (const jinja::TemplateError& error) {
    if (!file.empty()) throw;
    const std::string reason = error.what();
    log.write(LogLevel::error, "no chat: the model's template cannot be used, see --chat-template",
              {{"reason", reason}});
    return [reason](const nlohmann::ordered_json&) -> RenderedChat { fail("{}", reason); };
  }
  if (file.empty() && of_model.text.empty())
    log.write(LogLevel::warning, "the model has no chat template", {{"instead", chat_template->name()}});
  return [chat_template](const nlohmann::ordered_json& variables) {
    return chat_template->render(chat_input_from_json(variables));
  };
}

std::string chat_template_text(const std::string& file, const ModelSource& model) {
  if (file.empty()) {
    const ChatTemplateSource of_model = model.chat_template();
    return of_model.text + of_model.tool_use;
  }
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void set_answer_format(ApiContext& context, const AnswerFormatOptions& options,
                       std::string_view chat_template, ServerLog& log) {
  const ChatFormat* calls =
      choose_format("--tool-call-parser", options.tool_call_parser, detect_chat_format(chat_template));
  if (calls != nullptr && !has_calls(*calls)) {
    if (options.tool_call_parser != "auto")
      fail("--tool-call-parser: {} has no tool calls", options.tool_call_parser);
    calls = nullptr;
  }
  const ChatFormat* reasoning =
      choose_format("--reasoning-parser", options.reasoning_parser, detect_reasoning_format(chat_template));
  if (calls == nullptr && reasoning == nullptr) return;
  context.call_format = calls;
  context.reasoning_format = reasoning;
  context.finds_calls = calls != nullptr;
  context.finds_reasoning = reasoning != nullptr;
  // Its template refuses ids of another form.
  context.short_call_ids = calls != nullptr && name(*calls) == "mistral";
  context.make_answer_parser = [calls, reasoning](const ChatAnswerOptions& parser_options) {
    return make_chat_answer_parser(calls, reasoning, parser_options);
  };
  log.write(LogLevel::info, "answers are read",
            {{"tool_calls", name_or_none(calls)}, {"reasoning", name_or_none(reasoning)}});
}

}  // namespace minfer
