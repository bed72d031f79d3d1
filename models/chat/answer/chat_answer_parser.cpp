#include "models/chat/answer/chat_answer_parser.h"

#include "models/chat/answer/chat_format.h"

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
  if (calls->is_harmony || reasoning->is_harmony) return answer::make_harmony_parser(options);
  return answer::make_marked_answer_parser(calls->calls, reasoning->reasoning, options);
}

}  // namespace minfer
