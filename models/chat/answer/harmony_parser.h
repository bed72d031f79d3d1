#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/answer/delta_writer.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answer {

/// Parses answers of gpt-oss (OpenAI's Harmony format): messages
/// `<|start|>assistant<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>BODY<|end|>`, of which the prompt has begun the first.
/// The channel analysis holds thoughts, a recipient makes a call of a message, all else is content. A message that is not to be found
/// (finds_reasoning, finds_calls) is content with its markers.
class HarmonyParser final : public ChatAnswerParser {
 public:
  explicit HarmonyParser(const ChatAnswerOptions& options);
  void push(std::string_view text, std::vector<ChatDelta>& deltas) override;
  void finish(std::vector<ChatDelta>& deltas) override;

 private:
  enum class State {
    between,  ///< white space, or what may become the beginning of a header
    text,     ///< outside of messages
    header,
    body,
  };
  enum class Body { content, reasoning, call, as_written };

  void take(char c);
  void take_between(char c);
  void take_text(char c);
  void take_header(char c);
  void take_body(char c);
  void begin_body();
  void give_body(char c);
  void give_arguments(char c);
  void end_body();
  void give_up_call(std::string_view problem);
  void note_problem(std::string_view problem);

  const ChatAnswerOptions options_;
  const ToolTypes tools_;
  DeltaWriter out_;
  State state_ = State::between;
  Body body_ = Body::content;
  ExpectedLiteral header_begin_;
  MarkerFinder headers_;  ///< within text
  MarkerFinder ends_;     ///< of a body
  std::string header_;
  std::string function_;  ///< of the call whose body this is
  std::string written_;   ///< of a call, since something of it went out: content if it goes on no more
  JsonArguments arguments_;
  bool is_whole_ = false;  ///< the arguments have ended
  bool has_message_ = false;
};

}  // namespace minfer::answer
