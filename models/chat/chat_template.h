#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/chat/chat_template_source.h"
#include "models/chat/jinja/value/errors.h"
#include "models/chat/jinja/value/value.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {
/// The role of a message. A well-known one (system, user, assistant, tool ...) counts as the template's own
/// text, since templates make special tokens of it ('<|' + role + '|>'); any other is the request's.
jinja::Value make_role(std::string_view role);

/// The input of a chat template. All of it counts as the request's text: its bytes never become special tokens.
struct ChatInput {
  jinja::Value messages = jinja::make_list({});
  jinja::Value tools;      ///< a list, or None
  jinja::Value documents;  ///< a list, or None
  bool add_generation_prompt = true;
  /// Further variables, such as enable_thinking. A variable with the name of a field above or of a special token replaces it.
  std::vector<std::pair<std::string, jinja::Value>> variables;
  bool as_it_is = false;       ///< fails where Jinja2 fails, prints None where it does: ChatTemplate::render
  std::optional<std::tm> now;  ///< the time for strftime_now; absent: the local time

  void add_message(std::string_view role, std::string_view content);
};

/// A model's chat template. It turns a conversation into one prompt, as Hugging Face's apply_chat_template
/// does. Immutable: any thread may render.
class ChatTemplate {
 public:
  /// `bos` and `eos` are the texts of those tokens, which templates write themselves. Throws
  /// jinja::TemplateError if a source cannot be parsed.
  ChatTemplate(ChatTemplateSource source, std::string bos, std::string eos, const jinja::Limits& limits = {});

  /// Returns the prompt, to be tokenised with add_special = false, and the unused input. Throws jinja::TemplateRaised with the template's
  /// message if the template refuses the conversation, and jinja::TemplateError if it cannot be rendered for this
  /// input. Before it throws, it repairs inputs that clients send and templates often do not expect. A content of
  /// None becomes "" if the template fails over None or prints it. If the template still refuses, consecutive
  /// messages of one role become one. Once the template has used a field, the field counts as used from then on, so few prompts are
  /// rendered twice.
  RenderedChat render(const ChatInput& input) const;
  const std::string& name() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// The template in `file`; if `file` is empty, the model's own. If the model has none: the turn format whose tokens the
/// vocabulary has (ChatML, Llama 3 and 4, Gemma, Granite, gpt-oss, Phi 3), else ChatML, and then its name says so. The
/// model's template for tools stays. Throws FileError or jinja::TemplateError.
ChatTemplate open_chat_template(const std::string& file, const ChatTemplateSource& of_model,
                                const Tokenizer& tokenizer);

}  // namespace minfer
