#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "models/chat/answer/call_reader.h"
#include "models/chat/answer/chat_answer_parser.h"

namespace minfer {

/// The beginning of calls, and the syntax that follows.
struct CallOpening {
  std::string_view marker = {};  ///< empty: calls begin with `first`, at the start of an answer
  char first = '\0';
  std::variant<answers::JsonCallSyntax, answers::NamedCallSyntax, answers::TaggedCallSyntax,
               answers::PythonicCallSyntax>
      syntax = {};
  bool ends_reasoning =
      false;  ///< the marker is a control token: it counts within thoughts that never ended too
};

/// The markers around thoughts.
struct ReasoningMarkers {
  std::string_view open;
  std::string_view close;
};

struct ChatFormat {
  std::string_view name = {};
  std::span<const CallOpening> calls = {};
  /// Any of these may begin an answer. Prompts open the first.
  std::span<const ReasoningMarkers> reasoning = {};
  bool is_harmony = false;  ///< messages with channels (HarmonyParser); then nothing else is used
};

namespace answers {

std::unique_ptr<CallReader> make_call_reader(const CallOpening& opening, const CallContext& context);
std::unique_ptr<ChatAnswerParser> make_harmony_parser(const ChatAnswerOptions& options);
std::unique_ptr<ChatAnswerParser> make_marked_answer_parser(std::span<const CallOpening> calls,
                                                            std::span<const ReasoningMarkers> reasoning,
                                                            const ChatAnswerOptions& options);

}  // namespace answers
}  // namespace minfer
