#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/chat_template_source.h"
#include "models/gguf/gguf.h"

namespace minfer {

inline constexpr std::string_view kDefaultTemplate = "default";
inline constexpr std::string_view kToolTemplate = "tool_use";

/// The names of a file's chat templates, the default one first. A file has that one as tokenizer.chat_template or under its name, any
/// other as tokenizer.chat_template.NAME, and may list names as tokenizer.chat_templates. Throws FileError naming the key if a name of
/// the list has no template, or a key has another type than string.
std::vector<std::string> chat_template_names(const GgufFile& file);

/// The default template and the one for tools; empty texts if the file has none. Throws as chat_template_names() does.
ChatTemplateSource read_chat_template(const GgufFile& file);

}  // namespace minfer
