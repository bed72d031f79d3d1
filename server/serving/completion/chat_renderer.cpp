#include "server/serving/completion/chat_renderer.h"

#include <fstream>
#include <iterator>
#include <memory>

#include <nlohmann/json.hpp>

#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"

namespace minfer {

std::function<RenderedChat(const nlohmann::ordered_json& variables)> make_chat_renderer(
    const std::string& file, const Engine& engine, ServerLog& log) {
  const ChatTemplateSource of_model = engine.model().chat_template();
  std::shared_ptr<const ChatTemplate> chat_template;
  try {
    chat_template =
        std::make_shared<const ChatTemplate>(open_chat_template(file, of_model, engine.tokenizer()));
  } catch (const jinja::TemplateError& error) {
    if (!file.empty()) throw;
    const std::string reason = error.what();
    log.write(LogLevel::error, "no chat: the model's template cannot be used, see --chat-template",
              {{"reason", std::string_view(reason)}});
    return [reason](const nlohmann::ordered_json&) -> RenderedChat { fail("{}", reason); };
  }
  if (file.empty() && of_model.text.empty()) {
    log.write(LogLevel::warning, "the model has no chat template",
              {{"instead", std::string_view(chat_template->name())}});
  }
  return [chat_template](const nlohmann::ordered_json& variables) {
    return chat_template->render_and_check(chat_input_from_json(variables));
  };
}

std::string chat_template_text(const std::string& file, const Engine& engine) {
  if (file.empty()) {
    const ChatTemplateSource of_model = engine.model().chat_template();
    return of_model.text + of_model.tool_use;
  }
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace minfer
