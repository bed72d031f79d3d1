#include "models/chat/answer/chat_answer_parser.h"

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/harmony_parser.h"
#include "models/chat/answer/marked_answer_parser.h"

namespace minfer {

std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* format,
                                                          const ChatAnswerOptions& options) {
  return make_chat_answer_parser(format, format, options);
}

std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* calls,
                                                          const ChatFormat* reasoning,
                                                          const ChatAnswerOptions& options) {
  constexpr ChatFormat kNone;
  if (calls == nullptr) calls = &kNone;
  if (reasoning == nullptr) reasoning = &kNone;
  if (calls->is_harmony || reasoning->is_harmony) return std::make_unique<answer::HarmonyParser>(options);
  return std::make_unique<answer::MarkedAnswerParser>(calls->calls, reasoning->reasoning, options);
}

}  // namespace minfer
