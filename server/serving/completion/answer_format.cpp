#include "server/serving/completion/answer_format.h"

#include <fmt/ranges.h>

#include "kernels/error.h"
#include "models/chat/answer/chat_answer_parser.h"

namespace minfer {
namespace {

using Detect = const ChatFormat* (*)(std::string_view chat_template);

const ChatFormat* choose_format(std::string_view option, const std::string& wanted,
                                std::string_view chat_template, Detect detect) {
  if (wanted == "none") return nullptr;
  if (wanted == "auto") return detect(chat_template);
  const ChatFormat* format = find_chat_format(wanted);
  if (format == nullptr)
    fail("{}: {}, expected auto, none or one of {}", option, wanted, fmt::join(chat_format_names(), ", "));
  return format;
}

std::string_view name_or_none(const ChatFormat* format) {
  return format == nullptr ? "none" : name(*format);
}

}  // namespace

void set_answer_format(ApiContext& context, const AnswerFormatOptions& options,
                       std::string_view chat_template, ServerLog& log) {
  const ChatFormat* calls =
      choose_format("--tool-call-parser", options.tool_call_parser, chat_template, detect_chat_format);
  if (calls != nullptr && !has_calls(*calls)) {
    if (options.tool_call_parser != "auto")
      fail("--tool-call-parser: {} has no tool calls", options.tool_call_parser);
    calls = nullptr;
  }
  const ChatFormat* reasoning =
      choose_format("--reasoning-parser", options.reasoning_parser, chat_template, detect_reasoning_format);
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
