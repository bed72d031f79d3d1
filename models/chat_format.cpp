#include "models/chat_format.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/ranges.h>

#include "kernels/error.h"

namespace minfer {
namespace {

constexpr std::array<ChatFormat, 4> kFormats{{
    {"llama3", "<|start_header_id|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
    {"chatml", "<|im_start|>", "<|im_start|>", "\n", "<|im_end|>\n"},
    {"phi3", "<|end|>\n", "<|", "|>\n", "<|end|>\n"},
    {"minfer-demo", "<|end|>", "<|", "|>\n", "<|end|>"},
}};

}  // namespace

const ChatFormat& find_chat_format(std::string_view chat_template) {
  const auto found = std::ranges::find_if(kFormats, [&](const ChatFormat& format) {
    return chat_template.find(format.marker) != std::string_view::npos;
  });
  if (found != kFormats.end()) return *found;
  std::vector<std::string_view> known;
  for (const ChatFormat& format : kFormats)
    known.push_back(format.name);
  fail("the model's chat template is {}; formats known to --chat: {}",
       chat_template.empty() ? "missing" : "of an unknown format", fmt::join(known, ", "));
}

std::vector<PromptPart> render_chat(const ChatFormat& format, std::span<const ChatMessage> messages) {
  std::vector<PromptPart> parts;
  std::string markup;
  for (const ChatMessage& message : messages) {
    markup += fmt::format("{}{}{}", format.before_role, message.role, format.after_role);
    parts.push_back({std::move(markup), true});
    parts.push_back({message.content, false});
    markup = format.after_content;
  }
  markup += fmt::format("{}assistant{}", format.before_role, format.after_role);
  parts.push_back({std::move(markup), true});
  return parts;
}

}  // namespace minfer
