#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/chat_template_source.h"
#include "models/gguf/gguf.h"

namespace minfer {

inline constexpr std::string_view kDefaultTemplate = "default";
inline constexpr std::string_view kToolTemplate = "tool_use";

/// The names of a file's chat templates, the default first. The default is under tokenizer.chat_template or its name, any
/// other under tokenizer.chat_template.NAME; tokenizer.chat_templates may list names. Throws FileError naming the key if a listed
/// name has no template, or if a key is not a string.
std::vector<std::string> chat_template_names(const GgufFile& file);

/// The default template and the template for tools; empty texts if the file has none. Throws like chat_template_names().
ChatTemplateSource read_chat_template(const GgufFile& file);

}  // namespace minfer
