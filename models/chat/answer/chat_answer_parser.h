#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace minfer {

/// A part of what a model answers, as a client of a chat interface sees it.
struct ChatDelta {
  enum class Kind : uint8_t {
    content,         ///< `text`: more of the answer
    reasoning,       ///< `text`: more of the thoughts in front of it
    call_begin,      ///< call number `call` begins: of function `text`
    call_arguments,  ///< `text`: more of its arguments, which together are a JSON object
    call_end,        ///< its arguments are whole: a JSON object
  };
  Kind kind = Kind::content;
  std::string text = {};
  int32_t call = -1;  ///< 0, 1 ... in the order in which they begin
  bool operator==(const ChatDelta&) const = default;
};

/// Finds reasoning and tool calls in the text of one answer while it comes. One thread. However the text is divided into pieces, the
/// deltas of a kind join to the same text; pieces of whole characters bring deltas of whole characters. What is no call is content. A
/// call that is malformed or cut off comes back as content as it was written, unless parts of it have been given out already: then it
/// ends where it was cut, without call_end, and problem() says so. White space in front of a call, or between calls, is dropped where
/// nothing else stands there.
class ChatAnswerParser {
 public:
  virtual ~ChatAnswerParser() = default;
  virtual void push(std::string_view text, std::vector<ChatDelta>& deltas) = 0;
  /// The answer is over: what was held back.
  virtual void finish(std::vector<ChatDelta>& deltas) = 0;
  int32_t num_calls() const { return num_calls_; }  ///< that began
  /// For the log: what was malformed; empty: nothing.
  const std::string& problem() const { return problem_; }

 protected:
  int32_t num_calls_ = 0;
  std::string problem_;
};

/// What of an answer is to be found.
struct ChatAnswerOptions {
  bool finds_calls = false;      ///< the request has tools, and may call them
  bool finds_reasoning = false;  ///< else it stays content as it is written
  /// The prompt ends inside the model's thoughts (its template opened them).
  bool begins_in_reasoning = false;
  /// The answer goes on inside thoughts that a message of the request began: what find_open_thoughts() says.
  std::optional<size_t> open_thoughts = {};
  /// The request's `tools`, as OpenAI's API has them. Their schemas say which values are texts where a format does not show it, and
  /// their names which answers are calls where no marker does. May be null.
  std::shared_ptr<const nlohmann::ordered_json> tools = {};
};

/// How a family of models writes reasoning and tool calls: a row of the table in chat_format.cpp.
struct ChatFormat;
/// By name (those of vLLM are known too): --tool-call-parser, --reasoning-parser. Null: none has it.
const ChatFormat* find_chat_format(std::string_view name);
std::vector<std::string> chat_format_names();
/// The one that a chat template's text asks models for. Without tool calls that are known: detect_reasoning_format().
const ChatFormat* detect_chat_format(std::string_view chat_template);
/// The one whose thoughts a chat template's text speaks of. Null: it has none that are known.
const ChatFormat* detect_reasoning_format(std::string_view chat_template);
std::string_view name(const ChatFormat& format);
/// Else it is one of thoughts alone.
bool has_calls(const ChatFormat& format);
/// The markers by which calls and thoughts of an answer are found. Where the vocabulary has one as a control token, the answer has to be
/// detokenised with special tokens.
std::vector<std::string_view> markers(const ChatFormat& format);
/// Whether a prompt ends behind the marker that opens thoughts, white space aside: ChatAnswerOptions::begins_in_reasoning.
bool ends_in_reasoning(const ChatFormat& format, std::string_view prompt);
/// Whether a text of the assistant's, with which an answer goes on, stops inside its thoughts: between which of the format's markers.
std::optional<size_t> find_open_thoughts(const ChatFormat& format, std::string_view text);

/// `format` null: all is content.
std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* format,
                                                          const ChatAnswerOptions& options);
/// Calls as `calls` has them and thoughts as `reasoning` has them; null: it has none. Where one is gpt_oss, whose messages hold both, it
/// is used for both.
std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* calls,
                                                          const ChatFormat* reasoning,
                                                          const ChatAnswerOptions& options);

}  // namespace minfer
