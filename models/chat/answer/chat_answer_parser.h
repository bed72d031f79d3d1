#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace minfer {

/// A part of a model's answer, as a client of a chat interface sees it.
struct ChatDelta {
  enum class Kind : uint8_t {
    content,         ///< `text`: more of the answer
    reasoning,       ///< `text`: more of the thoughts before the answer
    call_begin,      ///< call number `call` begins; `text`: its function
    call_arguments,  ///< `text`: more of the arguments, which form a JSON object
    call_end,        ///< the arguments are whole: a JSON object
  };
  Kind kind = Kind::content;
  std::string text = {};
  int32_t call = -1;  ///< 0, 1 ... in the order in which they begin
  bool operator==(const ChatDelta&) const = default;
};

namespace answers {

/// Collects the output of an answer's readers. Text of one kind within one push becomes one delta.
class DeltaWriter {
 public:
  /// Appends the following output to `deltas`, which must live until the next begin_push().
  void begin_push(std::vector<ChatDelta>& deltas);

  void content(std::string_view text) { append(ChatDelta::Kind::content, text); }
  void reasoning(std::string_view text) { append(ChatDelta::Kind::reasoning, text); }
  void begin_call(std::string_view function);
  /// More arguments of the current call.
  void arguments(std::string_view text);
  void end_call();
  /// The current call ends before it is whole.
  void cut_call() { in_call_ = false; }

  bool in_call() const { return in_call_; }
  int32_t num_calls() const { return num_calls_; }
  /// Marks everything read so far as settled: it will not come back as content. That is so once a part of a call has been given out.
  void settle() { ++num_settled_; }
  /// The number of calls to settle().
  int64_t num_settled() const { return num_settled_; }

 private:
  void append(ChatDelta::Kind kind, std::string_view text);

  std::vector<ChatDelta>* deltas_ = nullptr;
  size_t first_of_push_ = 0;
  int32_t num_calls_ = 0;
  int64_t num_settled_ = 0;
  bool in_call_ = false;
};

}  // namespace answers

/// Finds reasoning and tool calls in the text of one answer while it streams. One thread. For any division of the text into pieces, the
/// deltas of a kind join to the same text; pieces of whole characters give deltas of whole characters. Text that is no call is content. A
/// call that is malformed or cut off comes back as content, as it was written. But if parts of it have been given out already, the call
/// ends where it was cut, without call_end, and problem() says so. White space in front of a call, or between calls, is dropped if
/// there is no other text.
class ChatAnswerParser {
 public:
  virtual ~ChatAnswerParser() = default;
  void push(std::string_view text, std::vector<ChatDelta>& deltas);
  /// The answer is over: gives out the text that was held back.
  void finish(std::vector<ChatDelta>& deltas);
  int32_t num_calls() const { return out_.num_calls(); }  ///< calls that began
  /// For the log: the malformed part of the answer; empty: none.
  const std::string& problem() const { return problem_; }

 protected:
  virtual void take(char c) = 0;
  virtual void end() = 0;
  void note_problem(std::string_view problem);

  answers::DeltaWriter out_;

 private:
  std::string problem_;
};

/// Which parts of an answer the parser looks for.
struct ChatAnswerOptions {
  bool finds_calls = false;      ///< the request has tools, and the answer may call them
  bool finds_reasoning = false;  ///< else reasoning stays content, as it was written
  /// The prompt ends inside the model's thoughts (its template opened them).
  bool begins_in_reasoning = false;
  /// The result of find_open_thoughts(): the answer goes on inside thoughts that a message of the request began.
  std::optional<size_t> open_thoughts = {};
  /// The request's `tools` in the form of OpenAI's API. Their schemas tell texts from other values if a format does not, and
  /// their names tell calls from other answers if no marker does. May be null.
  std::shared_ptr<const nlohmann::ordered_json> tools = {};
};

/// The way in which a family of models writes reasoning and tool calls: a row of the table in chat_format.cpp.
struct ChatFormat;
/// Finds a format by name, for --tool-call-parser and --reasoning-parser; vLLM's names work too. Null: there is none.
const ChatFormat* find_chat_format(std::string_view name);
std::vector<std::string> chat_format_names();
/// The format that a chat template's text asks models for. Without known tool calls: the result of detect_reasoning_format().
const ChatFormat* detect_chat_format(std::string_view chat_template);
/// The format whose thoughts a chat template's text mentions. Null: it mentions no known thoughts.
const ChatFormat* detect_reasoning_format(std::string_view chat_template);
std::string_view name(const ChatFormat& format);
/// False: the format has only thoughts.
bool has_calls(const ChatFormat& format);
/// The markers of calls and thoughts in an answer. If a marker is a control token of the vocabulary, the answer must be
/// detokenised with special tokens.
std::vector<std::string_view> markers(const ChatFormat& format);
/// True if a prompt ends behind the marker that opens thoughts, white space aside: ChatAnswerOptions::begins_in_reasoning.
bool ends_in_reasoning(const ChatFormat& format, std::string_view prompt);
/// For an assistant text that an answer continues: the index of the format's markers if the text stops inside thoughts; else no value.
std::optional<size_t> find_open_thoughts(const ChatFormat& format, std::string_view text);

/// `format` null: the whole answer is content.
std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* format,
                                                          const ChatAnswerOptions& options);
/// Reads calls in the format `calls` and thoughts in the format `reasoning`; null: there are none. If one of them is gpt_oss, whose
/// messages hold both, it reads both.
std::unique_ptr<ChatAnswerParser> make_chat_answer_parser(const ChatFormat* calls,
                                                          const ChatFormat* reasoning,
                                                          const ChatAnswerOptions& options);

}  // namespace minfer
