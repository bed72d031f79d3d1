#include "models/chat/read_chat_template.h"

#include <optional>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kListKey = "tokenizer.chat_templates";

std::string key_of(std::string_view name) {
  return fmt::format("{}.{}", kTemplateKey, name);
}

std::string text_of(const GgufFile& file, std::string_view name) {
  std::optional<std::string_view> text;
  if (name == kDefaultTemplate) text = file.get_string(kTemplateKey);
  if (!text || text->empty()) text = file.get_string(key_of(name));
  return std::string(text.value_or(""));
}

}  // namespace

std::vector<std::string> chat_template_names(const GgufFile& file) {
  std::vector<std::string> names;
  if (!text_of(file, kDefaultTemplate).empty()) names.emplace_back(kDefaultTemplate);
  const std::string prefix = key_of("");
  for (const GgufFile::Entry& entry : file.metadata()) {
    if (!entry.key.starts_with(prefix)) continue;
    const std::string name(entry.key.substr(prefix.size()));
    if (name != kDefaultTemplate && !text_of(file, name).empty()) names.push_back(name);
  }
  for (const std::string_view listed : file.get_strings(kListKey)) {
    if (!text_of(file, listed).empty()) continue;
    fail<FileError>("{}: {}: names \"{}\", expected a template as {}", file.name(), kListKey,
                    printable(listed), printable(key_of(listed)));
  }
  return names;
}

ChatTemplateSource read_chat_template(const GgufFile& file) {
  const std::vector<std::string> names = chat_template_names(file);
  ChatTemplateSource source{.text = text_of(file, kDefaultTemplate),
                            .tool_use = text_of(file, kToolTemplate)};
  source.name = fmt::format("chat template of {}", file.name());
  return source;
}

}  // namespace minfer
