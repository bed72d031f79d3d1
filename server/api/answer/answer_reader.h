#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/request.h"
#include "models/chat/answer/chat_answer_parser.h"
#include "models/tokenizer/tokenizer.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// Draws ids that nobody else has and that cannot be guessed. One thread.
class IdSource {
 public:
  /// `prefix` and `length` letters and digits.
  std::string draw(std::string_view prefix, int length = 24);

 private:
  std::random_device random_;
};

/// Takes control tokens out of an answer's text again: its parser had to see them, as some formats write their markers with
/// them, and the client must not. Of the tokens that came, so that the same letters from a person stay where none did. One thread.
class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Tokens that came: the control tokens among them are taken out from now on.
  void see(std::span<const TokenId> tokens);
  /// `text` without them. What may be the beginning of one stays here until the next call.
  std::string push(std::string_view text);
  /// What is left here: it began none.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> seen_;
  std::vector<std::string_view> texts_;  ///< of seen_, as the tokeniser has them
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
  std::string text = {};  ///< of a call: its arguments
  std::string name = {};  ///< of a call: the function
  std::string id = {};    ///< of a call
  bool whole = false;     ///< else the answer was cut in it, or it goes on
};

/// Reads the outputs of one choice: finds reasoning and calls in its text as the request wants it, takes out what the client is not
/// to see, and keeps the parts. Without a parser all is content. One thread; the request and the context outlive it.
class AnswerReader {
 public:
  AnswerReader(const CompletionRequest& request, const ApiContext& context);

  /// Takes the next output, and appends to `deltas` what the client sees of it: texts are never empty, but for those of a call's begin
  /// and end. Outputs behind the end give nothing.
  void read(const RequestOutput& output, std::vector<ChatDelta>& deltas);
  /// Set once the answer is over: with the last output, or behind the first call where only one is wanted.
  const std::optional<AnswerEnd>& end() const { return end_; }
  /// How many tokens went to reasoning; -1: it is not looked for. An output of several parts is shared by their bytes.
  int64_t reasoning_tokens() const { return parses_reasoning_ ? reasoning_tokens_ : -1; }
  /// What the parser found malformed; empty: nothing.
  std::string problem() const { return parser_ ? parser_->problem() : std::string{}; }

 private:
  void count_tokens(const RequestOutput& output, const std::vector<ChatDelta>& found);
  void keep(ChatDelta delta, std::vector<ChatDelta>& deltas);
  void keep_text(ChatDelta::Kind kind, std::string text, std::vector<ChatDelta>& deltas);
  void release_text(std::vector<ChatDelta>& deltas);
  void finish(const RequestOutput& output);

  std::unique_ptr<ChatAnswerParser> parser_;
  const bool one_call_;
  const bool shows_reasoning_;
  const bool parses_reasoning_;
  std::optional<SpecialText> special_;  ///< if control tokens are visible to the parser alone
  ChatDelta::Kind text_kind_ = ChatDelta::Kind::content;  ///< of what special_ holds back
  std::optional<AnswerEnd> end_;
  int32_t num_calls_ = 0;  ///< given out
  int64_t reasoning_tokens_ = 0;
  int64_t uncounted_tokens_ = 0;  ///< whose text the parser holds back
};

/// The parts of a choice that were read, in order; neighbours differ in kind, calls are one each. One thread.
class AnswerParts {
 public:
  /// `call_prefix`: of the ids of calls, which get `call_letters` letters behind it.
  AnswerParts(std::string call_prefix, int call_letters)
      : call_prefix_(std::move(call_prefix)), call_letters_(call_letters) {}

  /// Whether the delta begins a part of its own.
  bool begins_part(const ChatDelta& delta) const;
  void add(const ChatDelta& delta);
  /// The last part is whole; if there is one.
  void end_last();
  const std::vector<AnswerPart>& parts() const { return parts_; }
  const AnswerPart& last() const { return parts_.back(); }
  int32_t num_calls() const { return num_calls_; }
  /// All text of a kind, joined.
  std::string text(AnswerPart::Kind kind) const;

 private:
  std::vector<AnswerPart> parts_;
  std::string call_prefix_;
  int call_letters_;
  int32_t num_calls_ = 0;
  IdSource ids_;
};

/// A choice and what was read of it.
struct ParsedChoice {
  /// `call_prefix`: see AnswerParts.
  ParsedChoice(const CompletionRequest& request, const ApiContext& context, std::string_view call_prefix);

  AnswerReader reader;
  AnswerParts parts;
};

}  // namespace minfer
