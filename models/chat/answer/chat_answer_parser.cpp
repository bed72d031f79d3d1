#include "models/chat/answer/chat_answer_parser.h"

#include <fmt/format.h>

#include "models/chat/answer/chat_format.h"

namespace minfer {
namespace answers {

void DeltaWriter::begin_push(std::vector<ChatDelta>& deltas) {
  deltas_ = &deltas;
  first_of_push_ = deltas.size();
}

void DeltaWriter::append(ChatDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (deltas_->size() == first_of_push_ || deltas_->back().kind != kind) {
    deltas_->push_back({.kind = kind, .call = kind == ChatDelta::Kind::call_arguments ? num_calls_ - 1 : -1});
  }
  deltas_->back().text += text;
}

void DeltaWriter::begin_call(std::string_view function) {
  deltas_->push_back(
      {.kind = ChatDelta::Kind::call_begin, .text = std::string(function), .call = num_calls_});
  ++num_calls_;
  settle();
  in_call_ = true;
}

void DeltaWriter::arguments(std::string_view text) {
  append(ChatDelta::Kind::call_arguments, text);
  if (!text.empty()) settle();
}

void DeltaWriter::end_call() {
  deltas_->push_back({.kind = ChatDelta::Kind::call_end, .call = num_calls_ - 1});
  settle();
  in_call_ = false;
}

}  // namespace answers

void ChatAnswerParser::push(std::string_view text, std::vector<ChatDelta>& deltas) {
  out_.begin_push(deltas);
  for (const char c : text)
    take(c);
}

void ChatAnswerParser::finish(std::vector<ChatDelta>& deltas) {
  out_.begin_push(deltas);
  end();
}

void ChatAnswerParser::note_problem(std::string_view problem) {
  if (problem_.empty()) problem_ = fmt::format("call {}: {}", out_.num_calls(), problem);
}

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
  if (calls->is_harmony || reasoning->is_harmony) return answers::make_harmony_parser(options);
  return answers::make_marked_answer_parser(calls->calls, reasoning->reasoning, options);
}

}  // namespace minfer
