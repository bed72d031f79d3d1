#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/request.h"
#include "models/chat/answer/chat_answer_parser.h"
#include "models/chat/answer/custom_input.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// A unique id that cannot be guessed: `prefix`, and `length` letters and digits. Any thread.
std::string draw_id(std::string_view prefix, int length = 24);

/// Removes control tokens from an answer's text. The parser had to see them, as some formats write their markers with them;
/// the client must not. It removes only tokens that came, so that the same letters from a person stay elsewhere. One thread.
class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Takes new tokens: from now on the control tokens among them are removed.
  void see(std::span<const TokenId> tokens);
  /// Returns `text` without them. A possible beginning of one stays here until the next call.
  std::string push(std::string_view text);
  /// Returns the rest of the text, which began no control token.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::string_view> texts_;  ///< of the tokens that came, as the tokeniser has them
  std::string held_;
};

/// Why an answer ended.
enum class AnswerEnd : uint8_t {
  stop,         ///< the model ended it
  length,       ///< max_tokens, or the context
  stop_string,  ///< one of the request's
  calls,        ///< it ends with tool calls, which the client is to make
};
/// As OpenAI's chats name it: "stop", "length", "tool_calls".
std::string_view name(AnswerEnd end);

/// A part of an answer: a stretch of thoughts, a stretch of text, or a call.
struct AnswerPart {
  enum class Kind : uint8_t { reasoning, content, call };
  Kind kind = Kind::content;
  std::string text = {};  ///< of a call: its arguments; of a custom tool's call: its input
  std::string name = {};  ///< of a call: the function
  std::string id = {};    ///< of a call
  bool whole = false;     ///< false: the answer was cut in it, or it goes on
};

/// Reads the outputs of one choice: finds reasoning and calls in its text as the request wants, and removes what the client
/// must not see. A call of a custom tool has the tool's input instead of arguments. Without a parser all is content. One thread; the
/// request and the context outlive it.
class AnswerReader {
 public:
  AnswerReader(const CompletionRequest& request, const ApiContext& context);

  /// Takes the next output and appends to `deltas` what the client sees of it. Texts are
  /// never empty, except at a call's begin and end. Outputs after the end give nothing.
  void read(const RequestOutput& output, std::vector<ChatDelta>& deltas);
  /// Set once the answer is over: by the last output, or after the first call if only one is wanted.
  const std::optional<AnswerEnd>& end() const { return end_; }
  /// Tokens of reasoning; -1: reasoning is not looked for. The parts of an output share its tokens in proportion to their bytes.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  /// The malformed part that the parser found; empty: none.
  std::string problem() const { return parser_ ? parser_->problem() : std::string{}; }

 private:
  void count_tokens(const RequestOutput& output, const std::vector<ChatDelta>& found);
  void keep(ChatDelta delta, std::vector<ChatDelta>& deltas);
  void give_text(std::string text, std::vector<ChatDelta>& deltas);
  void release_text(std::vector<ChatDelta>& deltas);
  void end_input(bool whole, std::vector<ChatDelta>& deltas);

  std::unique_ptr<ChatAnswerParser> parser_;
  const bool one_call_;
  const bool shows_reasoning_;
  const ToolNames& custom_tools_;
  std::optional<CustomInput> input_;    ///< of the open call, if it is a custom tool's
  std::optional<SpecialText> special_;  ///< if control tokens are visible to the parser alone
  ChatDelta::Kind text_kind_ = ChatDelta::Kind::content;  ///< of the text that special_ holds back
  std::optional<AnswerEnd> end_;
  int32_t num_calls_ = 0;  ///< given out
  int64_t reasoning_tokens_;
  int64_t uncounted_tokens_ = 0;  ///< whose text the parser holds back
};

/// The parts read from a choice, in order; neighbours differ in kind, and each call is a part. One thread.
class AnswerParts {
 public:
  /// `call_prefix`: begins the ids of calls; `call_letters` letters follow it.
  AnswerParts(std::string call_prefix, int call_letters)
      : call_prefix_(std::move(call_prefix)), call_letters_(call_letters) {}

  /// True if the delta begins a part of its own.
  bool begins_part(const ChatDelta& delta) const;
  void add(const ChatDelta& delta);
  /// Marks the last part, if there is one, as whole.
  void end_last() {
    if (!parts_.empty()) parts_.back().whole = true;
  }
  const std::vector<AnswerPart>& parts() const { return parts_; }
  int32_t num_calls() const { return num_calls_; }
  /// All text of a kind, joined.
  std::string text(AnswerPart::Kind kind) const;

 private:
  std::vector<AnswerPart> parts_;
  std::string call_prefix_;
  int call_letters_;
  int32_t num_calls_ = 0;
};

/// A choice and the parts read from it.
struct ParsedChoice {
  ParsedChoice(const CompletionRequest& request, const ApiContext& context);

  AnswerReader reader;
  AnswerParts parts;
};

}  // namespace minfer
