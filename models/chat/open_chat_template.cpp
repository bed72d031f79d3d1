// Which chat template a model gets.
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "models/chat/chat_template.h"

namespace minfer {
namespace {

/// The text around a message in one of the formats that models are trained on.
struct TurnFormat {
  std::string_view name;
  std::string_view token;  ///< models whose vocabulary has it were trained on the format
  std::string_view before_role;
  std::string_view after_role;
  std::string_view after_content;
  std::string_view assistant = "assistant";
  bool has_system = true;  ///< else what the system says stands in front of the next message
};

constexpr std::array<TurnFormat, 7> kTurnFormats{{
    {"ChatML", "<|im_end|>", "<|im_start|>", R"(\n)", R"(<|im_end|>\n)"},
    {"Llama 3", "<|eot_id|>", "<|start_header_id|>", R"(<|end_header_id|>\n\n)", "<|eot_id|>"},
    {"Llama 4", "<|eot|>", "<|header_start|>", R"(<|header_end|>\n\n)", "<|eot|>"},
    {"Gemma", "<end_of_turn>", "<start_of_turn>", R"(\n)", R"(<end_of_turn>\n)", "model", false},
    {"Granite", "<|end_of_role|>", "<|start_of_role|>", "<|end_of_role|>", R"(<|end_of_text|>\n)"},
    {"gpt-oss", "<|channel|>", "<|start|>", "<|message|>", "<|end|>", "assistant<|channel|>final"},
    {"Phi 3", "<|end|>", "<|", R"(|>\n)", R"(<|end|>\n)"},
}};

bool is_token(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, {.add_special = false});
  return ids.size() == 1 && tokenizer.piece(ids.front(), true) == text;
}

/// Contents are texts, or lists of parts; of a list, only the texts count.
ChatTemplateSource default_source(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) {
  const auto known = std::ranges::find_if(
      kTurnFormats, [&](const TurnFormat& format) { return is_token(tokenizer, format.token); });
  const TurnFormat& format = known == kTurnFormats.end() ? kTurnFormats.front() : *known;
  const std::vector<TokenId> added = tokenizer.encode("", {});
  const bool adds_bos = !added.empty() && added.front() == tokenizer.bos();
  ChatTemplateSource source;
  source.tool_use = of_model.tool_use;
  source.name = fmt::format(
      "default chat template {}{}", format.name,
      known == kTurnFormats.end() ? ", though its vocabulary has the tokens of no known template" : "");
  source.text = fmt::format(
      "{0}{{% set ns = namespace(front='') %}}{{% for message in messages %}}"
      "{{% set content = message.content if message.content is string else "
      "message.content | selectattr('text') | join('', attribute='text') %}}"
      "{{% if message.role == 'system' and not {5} %}}{{% set ns.front = ns.front ~ content ~ '\\n\\n' %}}"
      "{{% else %}}{{{{ '{1}' + ('{4}' if message.role == 'assistant' else message.role) + '{2}' }}}}"
      "{{{{ ns.front ~ content }}}}{{{{ '{3}' }}}}{{% set ns.front = '' %}}{{% endif %}}{{% endfor %}}"
      "{{% if ns.front %}}{{{{ '{1}user{2}' ~ ns.front ~ '{3}' }}}}{{% endif %}}"
      "{{% if add_generation_prompt %}}{{{{ '{1}{4}{2}' }}}}{{% endif %}}",
      adds_bos ? "{{ bos_token }}" : "", format.before_role, format.after_role, format.after_content,
      format.assistant, format.has_system);
  return source;
}

ChatTemplateSource read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) fail<FileError>("chat template {}: cannot be read", path);
  return {.text = std::move(text), .name = fmt::format("chat template {}", path)};
}

}  // namespace

ChatTemplate open_chat_template(const std::string& file, const ChatTemplateSource& of_model,
                                const Tokenizer& tokenizer) {
  const auto text_of = [&](TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.piece(id, true));
  };
  ChatTemplateSource source = !file.empty()           ? read_file(file)
                              : of_model.text.empty() ? default_source(of_model, tokenizer)
                                                      : of_model;
  return {std::move(source), text_of(tokenizer.bos()), text_of(tokenizer.eos())};
}

}  // namespace minfer
